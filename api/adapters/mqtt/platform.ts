/** The exchange of the product: clients of the platform, messages in the log before they are acknowledged, sessions as rows. */
import type { MessageAccess, MessageGate } from '#api/devices/index.ts'
import type {
  CloseSession,
  Messages,
  OpenedSession,
  SessionStore,
  SessionStoreOptions,
  StoredSubscription,
} from '#api/messages/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sleep } from '#core/time.ts'
import { createAccess } from './access.ts'
import type { Cursor } from './cursors.ts'
import { newCursor } from './cursors.ts'
import type { Exchange, ExchangeHost, OpenRequest } from './exchange.ts'
import { createFollowing } from './following.ts'
import { createGroups } from './groups.ts'
import type { Held, HeldSessions } from './held.ts'
import { nameOf, subscriptionsOn } from './held.ts'
import type { Outbound, Step } from './session.ts'
import { Session } from './session.ts'
import { createStanding } from './standing.ts'
import {
  arrivalOf,
  fromStoredOutbound,
  optionsOf,
  toSentOutbound,
  toStoredOutbound,
  toStoredSubscription,
  toStoredWill,
} from './stored-session.ts'
import type { Subscription } from './subscription.ts'
import { parseShared } from './subscription.ts'
import { createStoring } from './storing.ts'
import { subtopicFilterOf } from './topics.ts'

export type PlatformExchangeDeps = {
  gate: MessageGate
  messages: Messages
  logger: Logger
  startStore: (
    options: Omit<SessionStoreOptions, 'database' | 'journal' | 'logger' | 'maxSessionsPerClient'>,
  ) => SessionStore
}

/** Clients that changed are looked up together. */
const REMOVE_AFTER_MS = 100
/** The end of a session that could not be written is written again after this. */
const CLOSE_AGAIN_MS = 500
/** A subscriber that is sent many retained messages takes them at its pace. */
const RETAINED_PAUSE_MS = 20

/** Of sessions that are not kept nobody counts. */
const UNCOUNTED: Step = { token: '', pending: 0 }

export function createPlatformExchange(
  { gate, messages, logger, startStore }: PlatformExchangeDeps,
  host: ExchangeHost,
): Exchange & { forget(entityKeys: readonly number[]): void } {
  const admission = createAccess(gate)
  const storing = createStoring({ gate, messages, logger, host })
  const held: HeldSessions = new Map()
  const following = createFollowing(messages, host, held)
  const groups = createGroups({ messages, host, position: () => following.position, poke: () => store.poke() })
  const standing = createStanding(following, groups, held)
  let changedKeys = new Set<number>()
  let removing: NodeJS.Timeout | undefined
  let subscriptionCount = 0
  let isStopped = false

  const store = startStore({
    sendWill: (will, { clientKey }) => storing.sendWill(will, clientKey),
    onTakeover(names) {
      const epochs = new Map(names.map(({ key, epoch }) => [key, epoch]))
      for (const session of held.keys()) {
        if ((epochs.get(session.key) ?? -1) >= session.epoch) host.takenOver(session)
      }
    },
    positions: standing.take,
    onForgotten() {
      // Whoever it was that looked after them meanwhile: they begin again from what lies in their rows.
      const error = new ServiceError('unavailable', 'this node was taken for dead')
      for (const session of held.keys()) host.failed(session, error)
    },
    wantedGroups: groups.wanted,
    onGroups: groups.apply,
  })

  function restore(request: OpenRequest, opened: OpenedSession): Held {
    const { identity, clientIdentifier, expirySeconds, will } = request
    const session = new Session(
      { key: opened.key, epoch: opened.epoch, identity, clientIdentifier, expirySeconds },
      sessionHost,
    )
    const known = new Set<string>()
    for (const stored of opened.outbound) {
      if (stored.batchSeq !== undefined && stored.facts.isShared !== true)
        known.add(`${stored.batchSeq} ${stored.message}`)
      session.restore(fromStoredOutbound(stored))
    }
    for (const packetId of opened.received) session.received.add(packetId)
    return {
      session,
      clientKey: identity.ownerKey ?? 0,
      cursors: new Map(),
      will,
      finished: [],
      known,
      skipped: 0,
    }
  }

  /** Subscriptions of an earlier connection, as far as they are still allowed. */
  async function takeUp(one: Held, opened: OpenedSession): Promise<void> {
    const { session } = one
    const lost: string[] = []
    const behind: Cursor[] = []
    const shared: Subscription[] = []
    const ungrouped: StoredSubscription[] = []
    for (const stored of opened.subscriptions) {
      const parts = parseShared(stored.filter)
      const found =
        parts === undefined
          ? undefined
          : await admission.filter(session.identity, parts.topicFilter).catch((error: unknown) => {
              if (kindOf(error) === 'unavailable' || kindOf(error) === 'timeout') throw error
              return undefined
            })
      if (found === undefined || parts === undefined) {
        lost.push(stored.filter)
        continue
      }
      const subscription = { ...found, ...parts, ...optionsOf(stored), filter: stored.filter, session }
      session.subscriptions.set(stored.filter, subscription)
      subscriptionCount++
      messages.presence.subscribed(one.clientKey, 'mqtt')
      if (subscription.group !== undefined) {
        shared.push(subscription)
        // Written before there were groups: its group begins where it stood.
        if (stored.group === undefined) ungrouped.push(toStoredSubscription(subscription, stored.position))
        continue
      }
      const known = one.cursors.get(found.streamKey)
      const cursor = known ?? newCursor(session, found.streamKey, found.access as MessageAccess, stored.position)
      following.add(cursor, subscription)
      if (known !== undefined) continue
      one.cursors.set(found.streamKey, cursor)
      if (cursor.mode === 'live') await following.begin(cursor)
      else behind.push(cursor)
    }
    if (lost.length > 0) await store.unsubscribe(session, lost)
    if (ungrouped.length > 0) await store.subscribe(session, one.clientKey, ungrouped)
    for (const subscription of shared) groups.join(subscription)
    for (const cursor of behind) following.goOn(cursor)
  }

  /** Writes subscriptions down. */
  async function keep(one: Held, subscriptions: readonly Subscription[]): Promise<void> {
    const { session } = one
    const cursors = subscriptions.map(({ streamKey, group }) =>
      group === undefined ? one.cursors.get(streamKey) : undefined,
    )
    // Where the session stands by itself: the node has perhaps not written down yet where it does.
    const stored = subscriptions.map((subscription, index) => {
      const cursor = cursors[index]
      return toStoredSubscription(subscription, cursor === undefined ? undefined : standing.of(cursor))
    })
    await store.subscribe(session, one.clientKey, stored)
    for (const cursor of cursors) if (cursor !== undefined) cursor.isStored = false
  }

  /** Returns what is under way to it and stays so. */
  function letGo(one: Held): Outbound[] {
    for (const cursor of one.cursors.values()) following.leave(cursor)
    for (const subscription of one.session.subscriptions.values()) {
      following.delete(subscription)
      groups.leave(subscription)
    }
    subscriptionCount -= one.session.subscriptions.size
    held.delete(one.session)
    if (one.clientKey !== 0) {
      messages.presence.offline(one.clientKey, 'mqtt')
      messages.presence.unsubscribed(one.clientKey, 'mqtt', one.session.subscriptions.size)
    }
    return groups.handBack(one.session)
  }

  /** What is under way to the client is known here alone: while the database cannot be written this is tried again. */
  async function writeEnd(end: CloseSession): Promise<void> {
    for (;;) {
      try {
        return await store.close(end)
      } catch (error) {
        const kind = kindOf(error)
        // Another connection has the session, and with it everything that is to be done.
        if (kind === 'conflict') return
        if (isStopped || (kind !== 'unavailable' && kind !== 'timeout')) throw error
        await sleep(CLOSE_AGAIN_MS)
      }
    }
  }

  const sessionHost: ExchangeHost = {
    ...host,
    sent(session) {
      host.sent(session)
      const { ownerKey } = session.identity
      if (ownerKey !== undefined) messages.presence.delivered(ownerKey, 1)
    },
    filled: following.filled,
    drained(session) {
      following.drained(session)
      groups.drained(session)
    },
    completed: (session, outbound) => {
      if (session.isPersistent) held.get(session)?.finished.push(outbound)
    },
  }

  return {
    ...admission,
    publish: storing.publish,
    async sendRetained(subscription) {
      const { session, access, levels, prefix, qos, identifier, streamKey } = subscription
      if (access === undefined) return
      const identifiers = identifier === undefined ? undefined : [identifier]
      const manner = { qos, retain: true, prefix, identifiers, streamKey }
      for (const kept of await messages.retained(access, subtopicFilterOf(levels))) {
        while (session.isFull && session.outlet !== undefined) await sleep(RETAINED_PAUSE_MS)
        if (session.outlet === undefined) return
        const { subtopic, payload, envelope } = kept
        session.push(
          arrivalOf({ subtopic, payload, envelope, batchSeq: undefined, index: 0, qos: kept.qos }),
          manner,
          UNCOUNTED,
        )
      }
    },
    async open(request) {
      const { identity, clientIdentifier, connect, expirySeconds, will, address } = request
      const { ownerKey } = identity
      if (ownerKey === undefined) {
        const unnamed = { key: 0, epoch: 0, isPresent: false, subscriptions: [], received: [], outbound: [] }
        const one = restore(request, { ...unnamed, endedWill: undefined })
        held.set(one.session, one)
        return { session: one.session, isPresent: false }
      }
      const opened = await store.open({
        clientKey: ownerKey,
        clientIdentifier,
        isClean: connect.cleanStart,
        version: connect.version,
        address,
        expirySeconds,
        will: will === undefined ? undefined : toStoredWill(will),
      })
      if (opened.endedWill !== undefined) {
        storing
          .sendWill(opened.endedWill, ownerKey)
          .catch((error: unknown) => logger.warn({ err: error }, 'a will was not sent'))
      }
      const one = restore(request, opened)
      held.set(one.session, one)
      messages.presence.online(ownerKey, 'mqtt')
      try {
        await takeUp(one, opened)
      } catch (error) {
        // It stays as it was for the next connection.
        const { key, epoch } = opened
        const positions = opened.subscriptions.flatMap(({ filter: name, position }) =>
          position === undefined ? [] : [{ filter: name, position }],
        )
        letGo(one)
        await store.close({ key, epoch, expirySeconds, will: undefined, positions, outbound: opened.outbound })
        throw error
      }
      return { session: one.session, isPresent: opened.isPresent }
    },
    async close(session, isWillDropped) {
      const one = held.get(session)
      if (one === undefined) return
      const positions = standing.atEnd(one)
      using _told = standing.closing(one)
      const underWay = letGo(one)
      const outbound = session.isPersistent ? underWay.map(toStoredOutbound) : []
      // What stays with the session is done for its groups as soon as that is written.
      using _written = { [Symbol.dispose]: () => groups.kept(underWay) }
      if (session.key === 0) return
      const will = one.will === undefined || isWillDropped ? undefined : toStoredWill(one.will)
      await writeEnd({ ...nameOf(session), expirySeconds: session.expirySeconds, will, positions, outbound })
    },
    async subscribe(session, subscriptions) {
      const one = held.get(session)
      if (one === undefined) return
      const joining: Promise<void>[] = []
      const shared = subscriptions.filter(({ group }) => group !== undefined)
      const replaced: Subscription[] = []
      for (const subscription of subscriptions) {
        const { streamKey, filter: name } = subscription
        const before = session.subscriptions.get(name)
        if (before !== undefined) {
          following.delete(before)
          replaced.push(before)
        } else {
          subscriptionCount++
          if (one.clientKey !== 0) messages.presence.subscribed(one.clientKey, 'mqtt')
        }
        session.subscriptions.set(name, subscription)
        if (subscription.group !== undefined) continue
        let cursor = one.cursors.get(streamKey)
        if (cursor === undefined) {
          cursor = newCursor(session, streamKey, subscription.access as MessageAccess, undefined)
          one.cursors.set(streamKey, cursor)
          joining.push(following.begin(cursor))
        }
        following.add(cursor, subscription)
      }
      await Promise.all(joining)
      if (session.key !== 0) await keep(one, subscriptions)
      // Meanwhile its connection may have ended.
      if (!held.has(session)) return
      for (const subscription of shared) groups.join(subscription)
      for (const subscription of replaced) groups.leave(subscription)
    },
    async unsubscribe(session, subscriptions) {
      const one = held.get(session)
      if (one === undefined) return
      for (const subscription of subscriptions) {
        const { streamKey, filter: name } = subscription
        session.subscriptions.delete(name)
        following.delete(subscription)
        groups.leave(subscription)
        subscriptionCount--
        if (one.clientKey !== 0) messages.presence.unsubscribed(one.clientKey, 'mqtt')
        const cursor = subscription.group === undefined ? one.cursors.get(streamKey) : undefined
        if (cursor === undefined || subscriptionsOn(session, streamKey).length > 0) continue
        one.cursors.delete(streamKey)
        following.leave(cursor)
      }
      if (session.key !== 0)
        await store.unsubscribe(
          session,
          subscriptions.map(({ filter: name }) => name),
        )
    },
    release: (session, packetId) => (session.isPersistent ? store.release(session, packetId) : undefined),
    remember(session, outbound) {
      if (session.key === 0) return undefined
      const passed = groups.passedOf(outbound)
      if (session.isPersistent) return store.remember(session, outbound.map(toSentOutbound), passed)
      return passed.length > 0 ? store.remember(session, [], passed) : undefined
    },
    tick: () => undefined,
    counts: () => ({ sessions: held.size, subscriptions: subscriptionCount }),
    forget(entityKeys) {
      for (const key of entityKeys) if (key > 0) changedKeys.add(key)
      if (changedKeys.size === 0) return
      removing ??= setTimeout(() => {
        removing = undefined
        const keys = [...changedKeys]
        changedKeys = new Set()
        store
          .removeOfDisabled(keys)
          .catch((error: unknown) => logger.warn({ err: error }, 'sessions of disabled clients were not ended'))
      }, REMOVE_AFTER_MS)
    },
    async stop() {
      isStopped = true
      following.stop()
      groups.stop()
      clearTimeout(removing)
      await store.stop()
    },
  }
}
