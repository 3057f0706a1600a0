/**
 * Shared subscriptions (section 4.8.2): a group is one reader of the log over all nodes. One node at a time has the turn to read for it,
 * and gives each message to one of the members that are connected to it; what its taker did not acknowledge goes to another.
 */
import type { MessageAccess } from '#api/devices/index.ts'
import type { GroupName, GroupPassed, GroupPosition, Messages, SessionStoreOptions } from '#api/messages/index.ts'
import { monotonicMs } from '#core/time.ts'
import type { ExchangeHost } from '../exchange.ts'
import type { Outbound, Session, Subscription } from '../session.ts'
import type { GroupBatch, TurnHost } from './group-turn.ts'
import { GroupMembers, GroupTurn, isOfGroup } from './group-turn.ts'
import { subtopicFilterOf } from './topics.ts'

export type GroupsDeps = {
  messages: Messages
  host: ExchangeHost
  /** Where everybody stands who keeps pace; undefined while nobody follows. */
  position: () => string | undefined
  /** Asks for `take` and `apply` soon. */
  wake: () => void
}

type Group = { readonly members: GroupMembers; turn: GroupTurn | undefined }

const idOf = ({ channelKey, name, filter }: GroupName) => `${channelKey}\n${name}\n${filter}`

export class Groups {
  readonly #turnHost: TurnHost
  readonly #wake: () => void
  readonly #groups = new Map<string, Group>()
  /** The node may serve groups until then: afterwards another one may think that it died. */
  #untilMs = 0
  #isStopped = false

  constructor({ messages, host, position, wake }: GroupsDeps) {
    this.#wake = wake
    this.#turnHost = { messages, host, position, mayServe: () => !this.#isStopped && monotonicMs() <= this.#untilMs }
  }

  /** Its session may be given messages of the group from now on. */
  join(subscription: Subscription): void {
    const name = groupNameOf(subscription)
    if (name === undefined) return
    let group = this.#groups.get(idOf(name))
    if (group === undefined) {
      group = { members: new GroupMembers(name, subscription.access as MessageAccess), turn: undefined }
      this.#groups.set(idOf(name), group)
    }
    group.members.add(subscription)
    if (group.turn === undefined) this.#wake()
    else group.turn.giveLeft()
  }

  /** It is given no more; what it was given stays with its session as long as that is connected. */
  leave(subscription: Subscription): void {
    const group = this.#groupOf(subscription)
    if (group === undefined) return
    group.members.delete(subscription)
    if (group.members.size > 0 || group.turn === undefined) return
    group.turn.beginEnding()
    this.#wake()
  }

  /** The session is gone: what another may be sent goes to others. Returns what stays with it. */
  handBack(session: Session): Outbound[] {
    const kept: Outbound[] = []
    const back: (Outbound & { batch: GroupBatch })[] = []
    for (const outbound of session.outbound()) {
      const { batch, qos, packetId } = outbound
      // With QoS 2 nobody else may be sent it once it was sent, or may have been [MQTT-4.8.2-5].
      if (isOfGroup(batch) && (qos === 1 || packetId === 0)) back.push({ ...outbound, batch })
      else kept.push(outbound)
    }
    for (const { batch, arrival } of back) batch.turn.giveBack(batch, arrival)
    for (const turn of new Set(back.map(({ batch }) => batch.turn))) if (turn.hasLeft) turn.giveLeft()
    return kept
  }

  /** What stayed with a session is written down, and done for its groups. */
  kept(outbound: readonly Outbound[]): void {
    for (const { batch } of outbound) {
      if (!isOfGroup(batch)) continue
      batch.pending--
      if (batch.turn.isEnding) this.#wake()
    }
  }

  /** Nothing waits any more in a session that fell behind. */
  drained(session: Session): void {
    for (const subscription of session.subscriptions.values()) this.#groupOf(subscription)?.turn?.giveLeft()
  }

  /** Of what is about to be sent with QoS 2, what nobody else may be sent from now on. */
  passedOf(outbound: readonly Outbound[]): GroupPassed[] {
    return outbound.flatMap(({ batch, state, arrival: { facts } }) => {
      if (!isOfGroup(batch) || state !== 'waiting' || facts.batchSeq === undefined) return []
      return [{ group: batch.turn.noteExactly(), batchSeq: facts.batchSeq, message: facts.index }]
    })
  }

  /** Groups with members here that another node reads for, or none. */
  wanted(): GroupName[] {
    return [...this.#groups.values()].flatMap(({ members, turn }) =>
      turn === undefined && members.size > 0 ? [members.name] : [],
    )
  }

  /** Where the groups stand, as far as that has to be written. */
  take(): { told: GroupPosition[]; undo(): void } {
    const taken = [...this.#groups.values()].flatMap(({ turn }) => turn?.take() ?? [])
    return {
      told: taken.map(({ told }) => told),
      undo() {
        for (const { undo } of taken) undo()
      },
    }
  }

  /** The groups that this node reads for from now on. */
  apply({ held, claimed, untilMs }: Parameters<SessionStoreOptions['onGroups']>[0]): void {
    this.#untilMs = untilMs
    const epochs = new Map(held.map(({ key, epoch }) => [key, epoch]))
    for (const one of claimed) {
      const group = this.#groups.get(idOf(one.name))
      if (group !== undefined && epochs.get(one.key) === one.epoch)
        group.turn = new GroupTurn(group.members, one, this.#turnHost)
    }
    let isWanted = false
    for (const [id, group] of this.#groups) {
      const { turn, members } = group
      if (turn !== undefined && epochs.get(turn.ref.key) !== turn.ref.epoch) {
        turn.end()
        group.turn = undefined
        isWanted ||= members.size > 0
      } else turn?.giveLeft()
      if (group.turn === undefined && members.size === 0) this.#groups.delete(id)
    }
    if (isWanted) this.#wake()
  }

  stop(): void {
    this.#isStopped = true
    for (const { turn } of this.#groups.values()) turn?.pause()
  }

  #groupOf(subscription: Subscription): Group | undefined {
    const name = groupNameOf(subscription)
    return name === undefined ? undefined : this.#groups.get(idOf(name))
  }
}

/** The group of a shared subscription. */
function groupNameOf({ streamKey, group, levels }: Subscription): GroupName | undefined {
  if (group === undefined) return undefined
  return { channelKey: streamKey, name: group, filter: subtopicFilterOf(levels) }
}
