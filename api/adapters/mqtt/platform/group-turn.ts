/**
 * The time during which this node reads the log for a group: it gives each message to one of the members that are connected to it, and
 * what its taker did not acknowledge to another.
 */
import type {
  Delivery,
  GroupName,
  GroupPosition,
  GroupRef,
  HeldGroup,
  Messages,
  PassedMessage,
} from '#api/messages/index.ts'
import type { MessageAccess } from '#api/devices/index.ts'
import { monotonicMs } from '#core/time.ts'
import type { Arrival } from '../arrival.ts'
import type { ExchangeHost } from '../exchange.ts'
import type { LogBatch, Subscription } from '../session.ts'
import { passBatches } from './cursors.ts'
import { MAX_MISSED_MESSAGES } from './following.ts'
import { arrivalFrom } from './stored-rows.ts'

/** Whoever left a group and does not answer for what it was sent holds up the next member no longer. */
const ANSWER_DEADLINE_MS = 5000

/** The members of a group that are connected to this node. */
export class GroupMembers {
  readonly name: GroupName
  readonly access: MessageAccess
  #members: readonly Subscription[] = []
  /** Whose it is to be given the next message. */
  #next = 0

  constructor(name: GroupName, access: MessageAccess) {
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

  /** One after the other, those first who can take it now; undefined: everybody has enough. */
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

  /** They tell when they have taken what waits. */
  awaitDrained(): void {
    for (const { session } of this.#members) session.isBehind = true
  }
}

export type GroupBatch = LogBatch & { turn: GroupTurn; given: PassedMessage[] }

export const isOfGroup = (batch: LogBatch | undefined): batch is GroupBatch => batch !== undefined && 'turn' in batch

/** What turns share. */
export type TurnHost = {
  readonly messages: Messages
  readonly host: ExchangeHost
  /** Where everybody stands who keeps pace; undefined while nobody follows. */
  position(): string | undefined
  /** The node may serve groups now: otherwise another one may think that it died. */
  mayServe(): boolean
}

/** As it is told to the database, and how to take it back where it could not be written. */
export type ToldPosition = { told: GroupPosition; undo(): void }

export class GroupTurn {
  readonly members: GroupMembers
  readonly ref: GroupRef
  readonly #host: TurnHost
  #mode: 'own' | 'live' | 'paused' = 'paused'
  /** Everything up to here was read. */
  #token: string
  batches: GroupBatch[] = []
  /** Everything up to here went its whole way. */
  settled: string
  /** Not to be given again. */
  readonly #known: Set<string>
  /** What nobody could take yet, oldest first. */
  #left: { arrival: Arrival; batch: GroupBatch }[] = []
  #isGiving = false
  /** As it lies in the row, and whether that is known. */
  #stored: string | undefined
  #isStored = true
  /** Whether messages beyond the position were noted. */
  #isExact: boolean
  /** Since when there was nobody to give to, in monotonic milliseconds: it is given up, whoever comes then. */
  #endingSinceMs: number | undefined
  #isOver = false
  #close: (() => void) | undefined
  #onDrained: (() => void) | undefined

  constructor(members: GroupMembers, { key, epoch, position, passed }: HeldGroup, host: TurnHost) {
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
    return this.#left.length > 0
  }

  /** Its last member left. */
  beginEnding(): void {
    this.#endingSinceMs = monotonicMs()
    this.pause()
  }

  /** Another node reads for it, or may. */
  end(): void {
    this.#isOver = true
    this.pause()
    this.#left = []
  }

  pause(): void {
    this.#mode = 'paused'
    this.#close?.()
    this.#close = undefined
    this.#tellDrained()
  }

  /** Messages beyond the position are noted from now on. */
  noteExactly(): GroupRef {
    this.#isExact = true
    return this.ref
  }

  /** A member left what it was given and did not acknowledge. */
  giveBack(batch: GroupBatch, arrival: Arrival): void {
    batch.pending--
    if (!this.#isOver) this.#giveOrKeep(arrival, batch)
  }

  /** To whoever can take it; then it goes on from where it stands. */
  giveLeft(): void {
    if (this.#isGiving) return
    this.#isGiving = true
    for (let next = this.#left[0]; next !== undefined; next = this.#left[0]) {
      const { arrival, batch } = next
      if (!this.#give(arrival, batch)) break
      this.#left.shift()
      batch.pending--
    }
    this.#isGiving = false
    if (this.#left.length > 0) return this.members.awaitDrained()
    this.#tellDrained()
    this.#goOn()
  }

  /** Where the group stands, if that has to be written; with what it is left to the next node once it has ended. */
  take(): ToldPosition | undefined {
    passBatches(this)
    if (this.#endingSinceMs !== undefined) {
      const pending = this.batches.reduce((sum, batch) => sum + batch.pending, 0)
      const isAnswered = pending === this.#left.length
      const isLate = monotonicMs() - this.#endingSinceMs > ANSWER_DEADLINE_MS
      return isAnswered || isLate ? { told: this.#release(), undo: () => undefined } : undefined
    }
    const isWithNode = this.#mode === 'live' && this.batches.length === 0 && this.#host.position() !== undefined
    const position = isWithNode ? undefined : this.settled
    if (position === this.#stored && this.#isStored) return undefined
    this.#stored = position
    this.#isStored = true
    return {
      told: { ...this.ref, position, passed: [], isExact: this.#isExact, isReleased: false },
      undo: () => (this.#isStored = false),
    }
  }

  #give(arrival: Arrival, batch: GroupBatch): boolean {
    const member = this.isEnding ? undefined : this.members.takeNext()
    if (member === undefined) return false
    member.session.deliver(arrival, [member], batch)
    return true
  }

  #giveOrKeep(arrival: Arrival, batch: GroupBatch): void {
    if (this.#left.length === 0 && this.#give(arrival, batch)) return
    batch.pending++
    this.#left.push({ arrival, batch })
  }

  #deliver(deliveries: readonly Delivery[]): void {
    const { messages, position, mayServe } = this.#host
    // Perhaps somebody else reads for it: what comes is read again when that is known.
    if (!mayServe()) return this.pause()
    if (this.batches.length === 0) this.settled = (this.#mode === 'live' ? position() : undefined) ?? this.#token
    const batch: GroupBatch = { token: messages.tokenOf(deliveries.at(-1)), pending: 0, turn: this, given: [] }
    this.batches.push(batch)
    for (const { message } of deliveries) {
      const { batchSeq, index } = message
      batch.given.push({ batchSeq, message: index })
      if (!this.#known.delete(`${batchSeq} ${index}`)) this.#giveOrKeep(arrivalFrom(message), batch)
    }
    this.#token = batch.token
    if (this.#left.length === 0) return
    this.members.awaitDrained()
    if (this.#mode === 'live') this.pause()
  }

  #tellDrained(): void {
    this.#onDrained?.()
    this.#onDrained = undefined
  }

  /** From where it stands, when there is somebody to give to. */
  #goOn(): void {
    if (this.#mode !== 'paused' || this.hasLeft || this.isEnding || this.#isOver || !this.#host.mayServe()) return
    this.#mode = 'own'
    // With the next round it is tried again.
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
            if (isEnded || this.#left.length === 0) resolve()
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
    // It was paused meanwhile, which the type does not see.
    if ((this.#mode as string) === 'paused' || isEnded) end()
    else this.#close = end
  }

  /** With what it is left to the next node: what was not given, and everything behind the position but what was. */
  #release(): GroupPosition {
    const position = this.batches.length === 0 ? this.#token : this.settled
    const left = new Set(this.#left.map(({ arrival: { facts } }) => `${facts.batchSeq} ${facts.index}`))
    const given = this.batches.flatMap((batch) => batch.given)
    const before = [...this.#known].map((name) => {
      const [batchSeq, message] = name.split(' ').map(Number) as [number, number]
      return { batchSeq, message }
    })
    const passed = [...given.filter(({ batchSeq, message }) => !left.has(`${batchSeq} ${message}`)), ...before]
    return { ...this.ref, position, passed, isExact: this.#isExact, isReleased: true }
  }
}
