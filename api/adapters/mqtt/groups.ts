/**
 * Shared subscriptions (section 4.8.2): a group is one reader of the log over all nodes. One node at a time has the turn to read for it,
 * and gives each message to one of the members that are connected to it; what its taker did not acknowledge goes to another.
 */
import type { MessageAccess } from '#api/devices/index.ts'
import type {
  Delivery,
  GroupName,
  GroupPassed,
  GroupPosition,
  GroupRef,
  HeldGroup,
  Messages,
  PassedMessage,
  SessionStoreOptions,
} from '#api/messages/index.ts'
import { monotonicMs } from '#core/time.ts'
import type { Arrival } from './arrival.ts'
import { passSteps } from './cursors.ts'
import type { ExchangeHost } from './exchange.ts'
import { MAX_MISSED_MESSAGES } from './following.ts'
import type { Outbound, Session, Step } from './session.ts'
import { arrivalFrom } from './stored-session.ts'
import type { Subscription } from './subscription.ts'
import { subtopicFilterOf } from './topics.ts'

/** Whoever left a group and does not answer for what it was sent holds up the next member no longer. */
const ANSWER_DEADLINE_MS = 5000

export type Groups = {
  /** Its session may be given messages of the group from now on. */
  join(subscription: Subscription): void
  /** It is given no more; what it was given stays with its session as long as that is connected. */
  leave(subscription: Subscription): void
  /** The session is gone: what another may be sent goes to others. Returns what stays with it. */
  handBack(session: Session): Outbound[]
  /** What stayed with a session is written down, and done for its groups. */
  kept(outbound: readonly Outbound[]): void
  /** Nothing waits any more in a session that fell behind. */
  drained(session: Session): void
  /** Of what is about to be sent with QoS 2, what nobody else may be sent from now on. */
  passedOf(outbound: readonly Outbound[]): GroupPassed[]
  /** Groups with members here that another node reads for, or none. */
  wanted(): GroupName[]
  /** Where the groups stand, for the keeper. */
  take(): { told: GroupPosition[]; undo(): void }
  apply: SessionStoreOptions['onGroups']
  stop(): void
}

type Group = {
  readonly name: GroupName
  readonly access: MessageAccess
  members: Subscription[]
  /** Whose it is to be given the next message. */
  next: number
  turn: Turn | undefined
}

/** The time during which this node reads for a group. */
class Turn {
  readonly group: Group
  readonly ref: GroupRef
  mode: 'own' | 'live' | 'paused' = 'paused'
  /** Everything up to here was read. */
  token: string
  steps: GroupStep[] = []
  /** Everything up to here went its whole way. */
  settled: string
  /** Not to be given again. */
  known: Set<string>
  /** What nobody could take yet, oldest first. */
  left: { arrival: Arrival; step: GroupStep }[] = []
  isGiving = false
  /** As it lies in the row, and whether that is known. */
  stored: string | undefined
  isStored = true
  /** Whether messages beyond the position were noted. */
  isExact: boolean
  /** Since when there was nobody to give to, in monotonic milliseconds: it is given up, whoever comes then. */
  endingSinceMs: number | undefined
  isOver = false
  close: (() => void) | undefined
  onDrained: (() => void) | undefined

  constructor(group: Group, { key, epoch, position, passed }: HeldGroup) {
    this.group = group
    this.ref = { key, epoch }
    this.token = this.settled = position ?? ''
    this.stored = position
    this.known = new Set(passed.map(({ batchSeq, message }) => `${batchSeq} ${message}`))
    this.isExact = passed.length > 0
  }

  get pending(): number {
    return this.steps.reduce((sum, { pending }) => sum + pending, 0)
  }
}

export type GroupStep = Step & { turn: Turn; given: PassedMessage[] }

export type GroupsDeps = {
  messages: Messages
  host: ExchangeHost
  /** Where everybody stands who keeps pace; undefined while nobody follows. */
  position: () => string | undefined
  /** Asks for `take` and `apply` soon. */
  poke: () => void
}

export const isOfGroup = (step: Step | undefined): step is GroupStep => step !== undefined && 'turn' in step

const idOf = ({ channelKey, name, filter }: GroupName) => `${channelKey}\n${name}\n${filter}`

/** The group of a shared subscription. */
export function groupNameOf({ streamKey, group, levels }: Subscription): GroupName | undefined {
  if (group === undefined) return undefined
  return { channelKey: streamKey, name: group, filter: subtopicFilterOf(levels) }
}

export function createGroups({ messages, host, position, poke }: GroupsDeps): Groups {
  const groups = new Map<string, Group>()
  /** The node may serve groups until then: afterwards another one may think that it died. */
  let untilMs = 0
  let isStopped = false

  const groupOf = (subscription: Subscription) => {
    const name = groupNameOf(subscription)
    return name === undefined ? undefined : groups.get(idOf(name))
  }

  /** One after the other, those first who can take it now; undefined: everybody has enough. */
  function choose({ members, next }: Group): Subscription | undefined {
    let possible: number | undefined
    for (let tried = 0; tried < members.length; tried++) {
      const at = (next + tried) % members.length
      const { session } = members[at] as Subscription
      if (session.isFull) continue
      if (session.outlet?.isWritable === true) return members[at]
      possible ??= at
    }
    return possible === undefined ? undefined : members[possible]
  }

  function give(turn: Turn, arrival: Arrival, step: GroupStep): boolean {
    const { group } = turn
    const member = turn.endingSinceMs === undefined ? choose(group) : undefined
    if (member === undefined) return false
    group.next = group.members.indexOf(member) + 1
    member.session.deliver(arrival, [member], step)
    return true
  }

  function giveOrKeep(turn: Turn, arrival: Arrival, step: GroupStep): void {
    if (turn.left.length === 0 && give(turn, arrival, step)) return
    step.pending++
    turn.left.push({ arrival, step })
  }

  function giveLeft(turn: Turn): void {
    if (turn.isGiving) return
    turn.isGiving = true
    for (let next = turn.left[0]; next !== undefined; next = turn.left[0]) {
      const { arrival, step } = next
      if (!give(turn, arrival, step)) break
      turn.left.shift()
      step.pending--
    }
    turn.isGiving = false
    if (turn.left.length > 0) return awaitDrained(turn)
    turn.onDrained?.()
    turn.onDrained = undefined
    goOn(turn)
  }

  function awaitDrained({ group }: Turn): void {
    for (const { session } of group.members) session.isBehind = true
  }

  function deliver(turn: Turn, deliveries: readonly Delivery[]): void {
    // Perhaps somebody else reads for it: what comes is read again when that is known.
    if (monotonicMs() > untilMs) return pause(turn)
    if (turn.steps.length === 0) turn.settled = (turn.mode === 'live' ? position() : undefined) ?? turn.token
    const step: GroupStep = { token: messages.tokenOf(deliveries.at(-1)), pending: 0, turn, given: [] }
    turn.steps.push(step)
    for (const { message } of deliveries) {
      const { batchSeq, index } = message
      step.given.push({ batchSeq, message: index })
      if (!turn.known.delete(`${batchSeq} ${index}`)) giveOrKeep(turn, arrivalFrom(message), step)
    }
    turn.token = step.token
    if (turn.left.length === 0) return
    awaitDrained(turn)
    if (turn.mode === 'live') pause(turn)
  }

  function pause(turn: Turn): void {
    turn.mode = 'paused'
    turn.close?.()
    turn.close = undefined
    turn.onDrained?.()
    turn.onDrained = undefined
  }

  /** From where it stands, when there is somebody to give to. */
  function goOn(turn: Turn): void {
    const isIdle = turn.left.length > 0 || turn.endingSinceMs !== undefined || turn.isOver
    if (turn.mode !== 'paused' || isIdle || isStopped || monotonicMs() > untilMs) return
    turn.mode = 'own'
    // With the next round it is tried again.
    follow(turn).catch(() => pause(turn))
  }

  async function follow(turn: Turn): Promise<void> {
    let isEnded = false
    const { close } = await messages.follow(
      {
        access: turn.group.access,
        filter: turn.group.name.filter,
        authorize: () => Promise.resolve(),
        deliver: (deliveries) => {
          if (!isEnded) deliver(turn, deliveries)
        },
        drained: () =>
          new Promise((resolve) => {
            if (isEnded || turn.left.length === 0) resolve()
            else turn.onDrained = resolve
          }),
        onLive() {
          if (isEnded) return
          turn.mode = 'live'
          turn.known.clear()
        },
        backlog: { maxMessages: MAX_MISSED_MESSAGES, onSkipped: (count) => host.dropped(undefined, 'skipped', count) },
        onEnd(reason) {
          if (isEnded || reason !== 'behind') return
          isEnded = true
          turn.close = undefined
          pause(turn)
        },
      },
      turn.token,
    )
    const end = () => {
      isEnded = true
      close()
    }
    if (turn.mode === 'paused' || isEnded) end()
    else turn.close = end
  }

  /** Another node reads for it, or may. */
  function endTurn(turn: Turn): void {
    turn.isOver = true
    pause(turn)
    turn.left = []
    turn.group.turn = undefined
  }

  /** With what it is left to the next node: what was not given, and everything behind the position but what was. */
  function releaseOf(turn: Turn): GroupPosition {
    const position = turn.steps.length === 0 ? turn.token : turn.settled
    const left = new Set(turn.left.map(({ arrival: { facts } }) => `${facts.batchSeq} ${facts.index}`))
    const given = turn.steps.flatMap((step) => step.given)
    const before = [...turn.known].map((name) => {
      const [batchSeq, message] = name.split(' ').map(Number) as [number, number]
      return { batchSeq, message }
    })
    const passed = [...given.filter(({ batchSeq, message }) => !left.has(`${batchSeq} ${message}`)), ...before]
    return { ...turn.ref, position, passed, isExact: turn.isExact, isReleased: true }
  }

  return {
    join(subscription) {
      const name = groupNameOf(subscription)
      if (name === undefined) return
      let group = groups.get(idOf(name))
      if (group === undefined) {
        group = { name, access: subscription.access as MessageAccess, members: [], next: 0, turn: undefined }
        groups.set(idOf(name), group)
      }
      group.members = [...group.members, subscription]
      if (group.turn === undefined) poke()
      else giveLeft(group.turn)
    },
    leave(subscription) {
      const group = groupOf(subscription)
      if (group === undefined) return
      group.members = group.members.filter((one) => one !== subscription)
      const { turn } = group
      if (group.members.length > 0 || turn === undefined) return
      turn.endingSinceMs = monotonicMs()
      pause(turn)
      poke()
    },
    handBack(session) {
      const kept: Outbound[] = []
      const back: (Outbound & { step: GroupStep })[] = []
      for (const outbound of session.outbound()) {
        const { step, qos, packetId } = outbound
        // With QoS 2 nobody else may be sent it once it was sent, or may have been [MQTT-4.8.2-5].
        if (isOfGroup(step) && (qos === 1 || packetId === 0)) back.push({ ...outbound, step })
        else kept.push(outbound)
      }
      for (const { step, arrival } of back) {
        step.pending--
        if (!step.turn.isOver) giveOrKeep(step.turn, arrival, step)
      }
      for (const { turn } of new Set(back.map(({ step }) => step))) if (turn.left.length > 0) giveLeft(turn)
      return kept
    },
    kept(outbound) {
      for (const { step } of outbound) {
        if (!isOfGroup(step)) continue
        step.pending--
        if (step.turn.endingSinceMs !== undefined) poke()
      }
    },
    drained(session) {
      for (const subscription of session.subscriptions.values()) {
        const turn = groupOf(subscription)?.turn
        if (turn !== undefined) giveLeft(turn)
      }
    },
    passedOf: (outbound) =>
      outbound.flatMap(({ step, state, arrival: { facts } }) => {
        if (!isOfGroup(step) || state !== 'waiting' || facts.batchSeq === undefined) return []
        step.turn.isExact = true
        return [{ group: step.turn.ref, batchSeq: facts.batchSeq, message: facts.index }]
      }),
    wanted: () =>
      [...groups.values()].flatMap(({ name, members, turn }) =>
        turn === undefined && members.length > 0 ? [name] : [],
      ),
    take() {
      const told: GroupPosition[] = []
      const undoing: (() => void)[] = []
      for (const { turn } of groups.values()) {
        if (turn === undefined) continue
        passSteps(turn)
        const isWaiting = turn.steps.length > 0
        if (turn.endingSinceMs !== undefined) {
          const isAnswered = turn.pending === turn.left.length
          if (isAnswered || monotonicMs() - turn.endingSinceMs > ANSWER_DEADLINE_MS) told.push(releaseOf(turn))
          continue
        }
        const isWithNode = turn.mode === 'live' && !isWaiting && position() !== undefined
        const stands = isWithNode ? undefined : turn.settled
        if (stands === turn.stored && turn.isStored) continue
        told.push({ ...turn.ref, position: stands, passed: [], isExact: turn.isExact, isReleased: false })
        turn.stored = stands
        turn.isStored = true
        undoing.push(() => (turn.isStored = false))
      }
      return {
        told,
        undo() {
          for (const undo of undoing) undo()
        },
      }
    },
    apply({ held, claimed, untilMs: until }) {
      untilMs = until
      const epochs = new Map(held.map(({ key, epoch }) => [key, epoch]))
      for (const one of claimed) {
        const group = groups.get(idOf(one.name))
        if (group !== undefined && epochs.get(one.key) === one.epoch) group.turn = new Turn(group, one)
      }
      let isWanted = false
      for (const [id, group] of groups) {
        const { turn, members } = group
        if (turn !== undefined && epochs.get(turn.ref.key) !== turn.ref.epoch) {
          endTurn(turn)
          isWanted ||= members.length > 0
        } else if (turn !== undefined) giveLeft(turn)
        if (group.turn === undefined && members.length === 0) groups.delete(id)
      }
      if (isWanted) poke()
    },
    stop() {
      isStopped = true
      for (const { turn } of groups.values()) if (turn !== undefined) pause(turn)
    },
  }
}
