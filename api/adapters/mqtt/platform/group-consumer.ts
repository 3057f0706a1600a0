/**
 * The consumer of a group, while this node reads the changelog for it: delivers each message to one connected member, and
 * redelivers messages that a member did not acknowledge.
 */
import type {
  Delivery,
  GroupName,
  GroupPosition,
  GroupRef,
  ServedGroup,
  Messages,
  PassedMessage,
} from '#api/messages/index.ts'
import type { ChannelAccess } from '#api/devices/index.ts'
import { monotonicMs } from '#core/time.ts'
import type { ApplicationMessage } from '../application-message.ts'
import type { BackendHost } from '../backend.ts'
import type { LogBatch, Subscription } from '../session.ts'
import { passBatches } from './cursors.ts'
import { MAX_MISSED_MESSAGES } from './session-delivery.ts'
import { applicationMessageFrom } from './stored-rows.ts'

/** How long a member that has left a group may delay redelivery of its messages. */
const ANSWER_DEADLINE_MS = 5000

/** The members of a group that are connected to this node. */
export class GroupMembers {
  readonly name: GroupName
  readonly access: ChannelAccess
  #members: readonly Subscription[] = []
  /** The index of the member that receives the next message. */
  #next = 0

  constructor(name: GroupName, access: ChannelAccess) {
    this.name = name
    this.access = access
  }

  get size(): number {
    return this.#members.length
  }

  add(subscription: Subscription): void {
    this.#members = [...this.#members, subscription]
  }

  delete(subscription: Subscription): void {
    this.#members = this.#members.filter((one) => one !== subscription)
  }

  /** Members in rotation, preferring those that can accept a message now; undefined when all queues are full. */
  takeNext(): Subscription | undefined {
    let possible: number | undefined
    for (let tried = 0; tried < this.#members.length; tried++) {
      const at = (this.#next + tried) % this.#members.length
      const { session } = this.#members[at] as Subscription
      if (session.isFull) continue
      possible ??= at
      if (session.outlet?.isWritable !== true) continue
      possible = at
      break
    }
    if (possible === undefined) return undefined
    this.#next = possible + 1
    return this.#members[possible]
  }

  /** Members report when their queue is empty. */
  awaitDrained(): void {
    for (const { session } of this.#members) session.isBehind = true
  }
}

export type GroupBatch = LogBatch & { consumer: GroupConsumer; messages: PassedMessage[] }

export const isOfGroup = (batch: LogBatch | undefined): batch is GroupBatch =>
  batch !== undefined && 'consumer' in batch

/** State that all consumers share. */
export type GroupConsumerHost = {
  readonly messages: Messages
  readonly host: BackendHost
  /** The position of sessions that keep pace; undefined without followers. */
  position(): string | undefined
  /** Whether the node may serve groups now: otherwise another node may consider it dead. */
  mayServe(): boolean
}

/** A position to store, and a function that undoes the report when the write fails. */
export type PositionReport = { report: GroupPosition; undo(): void }

export class GroupConsumer {
  readonly members: GroupMembers
  readonly ref: GroupRef
  readonly #host: GroupConsumerHost
  #mode: 'own' | 'live' | 'paused' = 'paused'
  /** Everything up to here was read. */
  #token: string
  batches: GroupBatch[] = []
  /** Everything up to here is completed. */
  settled: string
  /** Messages that must not be delivered again. */
  readonly #known: Set<string>
  /** Messages that no member could accept yet, oldest first. */
  #waiting: { applicationMessage: ApplicationMessage; batch: GroupBatch }[] = []
  #isDelivering = false
  /** The stored position, and whether it is known. */
  #stored: string | undefined
  #isStored = true
  /** Whether deliveries beyond the position are stored. */
  #isExact: boolean
  /** The monotonic time at which the last member left; the consumer ends, even if a member joins. */
  #endingSinceMs: number | undefined
  #isOver = false
  #close: (() => void) | undefined
  #onDrained: (() => void) | undefined

  constructor(members: GroupMembers, { key, epoch, position, passed }: ServedGroup, host: GroupConsumerHost) {
    this.members = members
    this.#host = host
    this.ref = { key, epoch }
    this.#token = this.settled = position ?? ''
    this.#stored = position
    this.#known = new Set(passed.map(({ batchSeq, message }) => `${batchSeq} ${message}`))
    this.#isExact = passed.length > 0
  }

  get isEnding(): boolean {
    return this.#endingSinceMs !== undefined
  }

  get hasLeft(): boolean {
    return this.#waiting.length > 0
  }

  /** The last member has left. */
  beginEnding(): void {
    this.#endingSinceMs = monotonicMs()
    this.pause()
  }

  /** Another node reads for the group, or may do so. */
  end(): void {
    this.#isOver = true
    this.pause()
    this.#waiting = []
  }

  pause(): void {
    this.#mode = 'paused'
    this.#close?.()
    this.#close = undefined
    this.#notifyDrained()
  }

  /** Stores deliveries beyond the position from now on. */
  noteExactly(): GroupRef {
    this.#isExact = true
    return this.ref
  }

  /** A member has left without acknowledging the message. */
  redeliver(batch: GroupBatch, applicationMessage: ApplicationMessage): void {
    batch.pending--
    if (!this.#isOver) this.#deliverOrWait(applicationMessage, batch)
  }

  /** Delivers undelivered messages to members that can accept them, then continues reading. */
  deliverWaiting(): void {
    if (this.#isDelivering) return
    this.#isDelivering = true
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const { applicationMessage, batch } = next
      if (!this.#deliverToMember(applicationMessage, batch)) break
      this.#waiting.shift()
      batch.pending--
    }
    this.#isDelivering = false
    if (this.#waiting.length > 0) return this.members.awaitDrained()
    this.#notifyDrained()
    this.#continue()
  }

  /** The position to store, if it changed; when the consumer ends also the state for the next node. */
  take(): PositionReport | undefined {
    passBatches(this)
    if (this.#endingSinceMs !== undefined) {
      const pending = this.batches.reduce((sum, batch) => sum + batch.pending, 0)
      const isAnswered = pending === this.#waiting.length
      const isLate = monotonicMs() - this.#endingSinceMs > ANSWER_DEADLINE_MS
      return isAnswered || isLate ? { report: this.#release(), undo: () => undefined } : undefined
    }
    const isWithNode = this.#mode === 'live' && this.batches.length === 0 && this.#host.position() !== undefined
    const position = isWithNode ? undefined : this.settled
    if (position === this.#stored && this.#isStored) return undefined
    this.#stored = position
    this.#isStored = true
    return {
      report: { ...this.ref, position, passed: [], isExact: this.#isExact, isReleased: false },
      undo: () => (this.#isStored = false),
    }
  }

  #deliverToMember(applicationMessage: ApplicationMessage, batch: GroupBatch): boolean {
    const member = this.isEnding ? undefined : this.members.takeNext()
    if (member === undefined) return false
    member.session.deliver(applicationMessage, [member], batch)
    return true
  }

  #deliverOrWait(applicationMessage: ApplicationMessage, batch: GroupBatch): void {
    if (this.#waiting.length === 0 && this.#deliverToMember(applicationMessage, batch)) return
    batch.pending++
    this.#waiting.push({ applicationMessage, batch })
  }

  #deliver(deliveries: readonly Delivery[]): void {
    const { messages, position, mayServe } = this.#host
    // Another node may be reading for it; messages are read again when that is known.
    if (!mayServe()) return this.pause()
    if (this.batches.length === 0) this.settled = (this.#mode === 'live' ? position() : undefined) ?? this.#token
    const batch: GroupBatch = { token: messages.tokenOf(deliveries.at(-1)), pending: 0, consumer: this, messages: [] }
    this.batches.push(batch)
    for (const { message } of deliveries) {
      const { batchSeq, index } = message
      batch.messages.push({ batchSeq, message: index })
      if (!this.#known.delete(`${batchSeq} ${index}`)) this.#deliverOrWait(applicationMessageFrom(message), batch)
    }
    this.#token = batch.token
    if (this.#waiting.length === 0) return
    this.members.awaitDrained()
    if (this.#mode === 'live') this.pause()
  }

  #notifyDrained(): void {
    this.#onDrained?.()
    this.#onDrained = undefined
  }

  /** Continues from its position when there are members. */
  #continue(): void {
    if (this.#mode !== 'paused' || this.hasLeft || this.isEnding || this.#isOver || !this.#host.mayServe()) return
    this.#mode = 'own'
    // Retried in the next round.
    this.#follow().catch(() => this.pause())
  }

  async #follow(): Promise<void> {
    const { messages, host } = this.#host
    let isEnded = false
    const { close } = await messages.follow(
      {
        access: this.members.access,
        filter: this.members.name.filter,
        authorize: () => Promise.resolve(),
        deliver: (deliveries) => {
          if (!isEnded) this.#deliver(deliveries)
        },
        drained: () =>
          new Promise((resolve) => {
            if (isEnded || this.#waiting.length === 0) resolve()
            else this.#onDrained = resolve
          }),
        onLive: () => {
          if (isEnded) return
          this.#mode = 'live'
          this.#known.clear()
        },
        backlog: { maxMessages: MAX_MISSED_MESSAGES, onSkipped: (count) => host.dropped(undefined, 'skipped', count) },
        onEnd: (reason) => {
          if (isEnded || reason !== 'behind') return
          isEnded = true
          this.#close = undefined
          this.pause()
        },
      },
      this.#token,
    )
    const end = () => {
      isEnded = true
      close()
    }
    // Paused during the await, which the type does not show.
    if ((this.#mode as string) === 'paused' || isEnded) end()
    else this.#close = end
  }

  /** The state for the next node: undelivered messages, and deliveries beyond the position. */
  #release(): GroupPosition {
    const position = this.batches.length === 0 ? this.#token : this.settled
    const left = new Set(this.#waiting.map(({ applicationMessage: { facts } }) => `${facts.batchSeq} ${facts.index}`))
    const handled = this.batches.flatMap((batch) => batch.messages)
    const before = [...this.#known].map((name) => {
      const [batchSeq, message] = name.split(' ').map(Number) as [number, number]
      return { batchSeq, message }
    })
    const passed = [...handled.filter(({ batchSeq, message }) => !left.has(`${batchSeq} ${message}`)), ...before]
    return { ...this.ref, position, passed, isExact: this.#isExact, isReleased: true }
  }
}
