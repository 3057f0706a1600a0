/**
 * Hints between nodes: which channels are followed where, and which messages were committed in them. Hints make delivery fast; the
 * changelog makes it correct. A hint that is lost, delayed, repeated or invalid costs one read.
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
/** The interval at which a node repeats its followed channels, and the time after which a silent node is removed. */
const REPEAT_MS = 2000
const NODE_TIMEOUT_MS = 7000
/** New followers within this time are announced together. */
const ANNOUNCE_AFTER_MS = 20
/** A node with more followed channels announces "all": the names would not fit. */
const MAX_NAMED = 1000
/** The maximum number of nodes that are tracked. */
const MAX_NODES = 1000
const MARK_BYTES = 6
/** The minimum size of a message's header in a hint: many small messages must not exceed the size of a hint. */
const HEAD_BYTES = 100

export type LiveHintsOptions = {
  bus: Bus
  /** The channels that are followed on this node. */
  channels: ReadonlyMap<number, string>
  /** Called when another node has committed a batch, with all its messages of channels followed here, or undefined. */
  onCommitted: (batch: { seq: number; messages: readonly LiveMessage[] } | undefined) => void
}

type Node = { channels: ReadonlySet<number> | 'all'; untilMs: number }
type Announcement = { node: string; channels: number[] | 'all'; asks?: boolean }

export class LiveHints {
  readonly #options: LiveHintsOptions
  /** Identifies this node's own hints. */
  readonly #mark = randomBytes(MARK_BYTES).toString('hex')
  readonly #nodes = new Map<string, Node>()
  readonly #ends: (() => void)[]
  readonly #repeating: NodeJS.Timeout
  #announcing: NodeJS.Timeout | undefined

  constructor(options: LiveHintsOptions) {
    const { bus, channels } = options
    this.#options = options
    this.#ends = [
      bus.subscribe(FOLLOWED_TOPIC, (payload) => this.#receiveFollowed(payload)),
      bus.subscribe(COMMITTED_TOPIC, (payload) => this.#receiveCommitted(payload)),
    ]
    this.#repeating = setInterval(() => {
      if (channels.size > 0) this.#announce(false)
    }, REPEAT_MS)
    this.#announce(true)
  }

  /** Announces a new follower on this node. */
  followed(): void {
    this.#announcing ??= setTimeout(() => {
      this.#announcing = undefined
      this.#announce(false)
    }, ANNOUNCE_AFTER_MS)
  }

  /** Notifies nodes that follow one of the channels of a committed batch. */
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
    clearTimeout(this.#announcing)
  }

  #announce(asks: boolean): void {
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

  #receiveFollowed(payload: Uint8Array): void {
    const announcement = parseAnnouncement(payload)
    if (announcement === undefined || announcement.node === this.#mark) return
    if (announcement.channels !== 'all' && announcement.channels.length === 0) this.#nodes.delete(announcement.node)
    else if (this.#nodes.has(announcement.node) || this.#nodes.size < MAX_NODES) {
      const followed = announcement.channels === 'all' ? 'all' : new Set(announcement.channels)
      this.#nodes.set(announcement.node, { channels: followed, untilMs: monotonicMs() + NODE_TIMEOUT_MS })
    }
    if (announcement.asks === true && this.#options.channels.size > 0) this.followed()
  }

  #receiveCommitted(payload: Uint8Array): void {
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
