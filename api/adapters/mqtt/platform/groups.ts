/**
 * Shared subscriptions (section 4.8.2). A group has one reader of the changelog over all nodes: one node at a time reads for it and
 * delivers each message to one of its connected members; an unacknowledged message is redelivered to another.
 */
import type { ChannelAccess } from '#api/devices/index.ts'
import type { GroupName, GroupPassed, GroupPosition, Messages, SessionStoreOptions } from '#api/messages/index.ts'
import { monotonicMs } from '#core/time.ts'
import type { BackendHost } from '../backend.ts'
import type { Outbound, Session, Subscription } from '../session.ts'
import type { GroupBatch, GroupConsumerHost } from './group-consumer.ts'
import { GroupMembers, GroupConsumer, isOfGroup } from './group-consumer.ts'
import { subtopicFilterOf } from './topics.ts'

export type GroupsDeps = {
  messages: Messages
  host: BackendHost
  /** The position of sessions that keep pace; undefined without followers. */
  position: () => string | undefined
  /** Requests `take` and `apply` soon. */
  wake: () => void
}

type Group = { readonly members: GroupMembers; consumer: GroupConsumer | undefined }

const idOf = ({ channelKey, name, filter }: GroupName) => `${channelKey}\n${name}\n${filter}`

export class Groups {
  readonly #consumerHost: GroupConsumerHost
  readonly #wake: () => void
  readonly #groups = new Map<string, Group>()
  /** The time until which the node may serve groups: afterwards another node may consider it dead. */
  #untilMs = 0
  #isStopped = false

  constructor({ messages, host, position, wake }: GroupsDeps) {
    this.#wake = wake
    this.#consumerHost = {
      messages,
      host,
      position,
      mayServe: () => !this.#isStopped && monotonicMs() <= this.#untilMs,
    }
  }

  /** The session may receive messages of the group from now on. */
  join(subscription: Subscription): void {
    const name = groupNameOf(subscription)
    if (name === undefined) return
    let group = this.#groups.get(idOf(name))
    if (group === undefined) {
      group = { members: new GroupMembers(name, subscription.access as ChannelAccess), consumer: undefined }
      this.#groups.set(idOf(name), group)
    }
    group.members.add(subscription)
    if (group.consumer === undefined) this.#wake()
    else group.consumer.deliverWaiting()
  }

  /** It receives no more; delivered messages stay with its session while that is connected. */
  leave(subscription: Subscription): void {
    const group = this.#groupOf(subscription)
    if (group === undefined) return
    group.members.delete(subscription)
    if (group.members.size > 0 || group.consumer === undefined) return
    group.consumer.beginEnding()
    this.#wake()
  }

  /** The session has ended: redelivers messages to other members. Returns those that stay with the session. */
  handBack(session: Session): Outbound[] {
    const kept: Outbound[] = []
    const back: (Outbound & { batch: GroupBatch })[] = []
    for (const outbound of session.outbound()) {
      const { batch, qos, packetId } = outbound
      // A QoS 2 message that may have been sent must not be sent to another client [MQTT-4.8.2-5].
      if (isOfGroup(batch) && (qos === 1 || packetId === 0)) back.push({ ...outbound, batch })
      else kept.push(outbound)
    }
    for (const { batch, applicationMessage } of back) batch.consumer.redeliver(batch, applicationMessage)
    for (const consumer of new Set(back.map(({ batch }) => batch.consumer)))
      if (consumer.hasLeft) consumer.deliverWaiting()
    return kept
  }

  /** Messages that stayed with a session are stored, and completed for their groups. */
  kept(outbound: readonly Outbound[]): void {
    for (const { batch } of outbound) {
      if (!isOfGroup(batch)) continue
      batch.pending--
      if (batch.consumer.isEnding) this.#wake()
    }
  }

  /** The queue of a session that fell behind is empty. */
  drained(session: Session): void {
    for (const subscription of session.subscriptions.values()) this.#groupOf(subscription)?.consumer?.deliverWaiting()
  }

  /** Returns, of QoS 2 messages that are about to be sent, those of groups that must not be delivered to others from now on. */
  passedOf(outbound: readonly Outbound[]): GroupPassed[] {
    return outbound.flatMap(({ batch, state, applicationMessage: { facts } }) => {
      if (!isOfGroup(batch) || state !== 'waiting' || facts.batchSeq === undefined) return []
      return [{ group: batch.consumer.noteExactly(), batchSeq: facts.batchSeq, message: facts.index }]
    })
  }

  /** Groups with members here that this node does not read for. */
  wanted(): GroupName[] {
    return [...this.#groups.values()].flatMap(({ members, consumer }) =>
      consumer === undefined && members.size > 0 ? [members.name] : [],
    )
  }

  /** The positions of groups to store. */
  take(): { report: GroupPosition[]; undo(): void } {
    const taken = [...this.#groups.values()].flatMap(({ consumer }) => consumer?.take() ?? [])
    return {
      report: taken.map(({ report }) => report),
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
        group.consumer = new GroupConsumer(group.members, one, this.#consumerHost)
    }
    let isWanted = false
    for (const [id, group] of this.#groups) {
      const { consumer, members } = group
      if (consumer !== undefined && epochs.get(consumer.ref.key) !== consumer.ref.epoch) {
        consumer.end()
        group.consumer = undefined
        isWanted ||= members.size > 0
      } else consumer?.deliverWaiting()
      if (group.consumer === undefined && members.size === 0) this.#groups.delete(id)
    }
    if (isWanted) this.#wake()
  }

  stop(): void {
    this.#isStopped = true
    for (const { consumer } of this.#groups.values()) consumer?.pause()
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
