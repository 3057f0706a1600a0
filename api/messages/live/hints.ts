/**
 * Hints between the hubs of several nodes: which channels are followed where, and what was just committed in those. A hint
 * makes delivery fast, the log makes it right: a hint that is lost, late, repeated or not understood costs a read.
 */
import { randomBytes } from 'node:crypto'
import { MAX_HINT_BYTES } from '#core/bus/index.ts'
import type { Bus } from '#core/bus/index.ts'
import { monotonicMs } from '#core/time.ts'
import type { IncomingMessage } from '../model/message.ts'
import { NO_CONTENT, formatHint, parseHint } from './hint-format.ts'
import { fromIncoming } from './live-message.ts'
import type { LiveMessage } from './live-message.ts'

/** Bus topic of "this batch was committed". */
const COMMITTED_TOPIC = 'skein.messages'
/** Bus topic of "these channels are followed here". */
const FOLLOWED_TOPIC = 'skein.messages.followed'
/** A node repeats what is followed there so often, and is forgotten when it did not for so long. */
const REPEAT_MS = 2000
const FORGET_MS = 7000
/** Followers that come together are told of together. */
const TELL_AFTER_MS = 20
/** A node that follows more says that it follows all: the names would not fit. */
const MAX_NAMED = 1000
/** Nodes that are remembered; there are not so many. */
const MAX_NODES = 1000
const MARK_BYTES = 6
/** What a message says of itself in a hint, at the least: many small ones are not made into a hint that is too large. */
const HEAD_BYTES = 100

export type LiveHintsOptions = {
  bus: Bus
  /** What is followed on this node. */
  channels: ReadonlyMap<number, string>
  /** Another node committed a batch; with all its messages of the channels that are followed here, or without them. */
  onCommitted: (batch: { seq: number; messages: readonly LiveMessage[] } | undefined) => void
}

type Node = { channels: ReadonlySet<number> | 'all'; untilMs: number }
type Announcement = { node: string; channels: number[] | 'all'; asks?: boolean }

export class LiveHints {
  readonly #options: LiveHintsOptions
  /** By which this node knows its own hints. */
  readonly #mark = randomBytes(MARK_BYTES).toString('hex')
  readonly #nodes = new Map<string, Node>()
  readonly #ends: (() => void)[]
  readonly #repeating: NodeJS.Timeout
  #telling: NodeJS.Timeout | undefined

  constructor(options: LiveHintsOptions) {
    const { bus, channels } = options
    this.#options = options
    this.#ends = [
      bus.subscribe(FOLLOWED_TOPIC, (payload) => this.#hearFollowed(payload)),
      bus.subscribe(COMMITTED_TOPIC, (payload) => this.#hearCommitted(payload)),
    ]
    this.#repeating = setInterval(() => {
      if (channels.size > 0) this.#tell(false)
    }, REPEAT_MS)
    this.#tell(true)
  }

  /** Somebody new follows here. */
  followed(): void {
    this.#telling ??= setTimeout(() => {
      this.#telling = undefined
      this.#tell(false)
    }, TELL_AFTER_MS)
  }

  /** This node committed a batch: whoever follows one of its channels hears of it. */
  committed(batchSeq: number, messages: readonly IncomingMessage[]): void {
    if (this.#nodes.size === 0) return
    const told: LiveMessage[] = []
    const others = new Set<number>()
    let bytes = 0
    messages.forEach((message, index) => {
      const { channelKey } = message.access
      if (!this.#isFollowedElsewhere(channelKey)) others.add(channelKey)
      else if (bytes <= MAX_HINT_BYTES) {
        const live = fromIncoming(message, batchSeq, index)
        bytes += HEAD_BYTES + live.payload.length
        told.push(live)
      }
    })
    if (told.length === 0) return
    const isSmall = bytes <= MAX_HINT_BYTES
    const hint = { mark: this.#mark, seq: batchSeq, messages: told, others: [...others] }
    this.#options.bus.publish(COMMITTED_TOPIC, isSmall ? formatHint(hint) : NO_CONTENT)
  }

  close(): void {
    for (const end of this.#ends) end()
    clearInterval(this.#repeating)
    clearTimeout(this.#telling)
  }

  #tell(asks: boolean): void {
    const { bus, channels } = this.#options
    const followed = channels.size > MAX_NAMED ? 'all' : [...channels.keys()]
    const announcement: Announcement = { node: this.#mark, channels: followed, ...(asks ? { asks } : {}) }
    bus.publish(FOLLOWED_TOPIC, Buffer.from(JSON.stringify(announcement)))
  }

  #isFollowedElsewhere(channelKey: number): boolean {
    const now = monotonicMs()
    for (const [name, node] of this.#nodes) {
      if (node.untilMs < now) this.#nodes.delete(name)
      else if (node.channels === 'all' || node.channels.has(channelKey)) return true
    }
    return false
  }

  #hearFollowed(payload: Uint8Array): void {
    const heard = parseAnnouncement(payload)
    if (heard === undefined || heard.node === this.#mark) return
    if (heard.channels !== 'all' && heard.channels.length === 0) this.#nodes.delete(heard.node)
    else if (this.#nodes.has(heard.node) || this.#nodes.size < MAX_NODES) {
      const followed = heard.channels === 'all' ? 'all' : new Set(heard.channels)
      this.#nodes.set(heard.node, { channels: followed, untilMs: monotonicMs() + FORGET_MS })
    }
    if (heard.asks === true && this.#options.channels.size > 0) this.followed()
  }

  #hearCommitted(payload: Uint8Array): void {
    const { channels, onCommitted } = this.#options
    if (channels.size === 0) return
    const hint = parseHint(payload, channels)
    if (hint?.mark === this.#mark) return
    const isWhole = hint !== undefined && hint.others.every((key) => !channels.has(key))
    onCommitted(isWhole ? { seq: hint.seq, messages: hint.messages } : undefined)
  }
}

function parseAnnouncement(payload: Uint8Array): Announcement | undefined {
  try {
    const value = JSON.parse(Buffer.from(payload).toString()) as Partial<Announcement>
    const isValid = typeof value.node === 'string' && (value.channels === 'all' || Array.isArray(value.channels))
    return isValid ? (value as Announcement) : undefined
  } catch {
    return undefined
  }
}
