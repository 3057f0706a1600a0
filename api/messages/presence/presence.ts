/**
 * Which clients have a session open, on whatever node, and how much was handed to them. Told by the adapters, kept in
 * memory, written once a second: what a session does costs it no round trip. A node that dies leaves nobody online: it
 * says that it lives in a row of its own, and others clear away what belongs to a row that grew old.
 */
import type { Database } from '#core/database/index.ts'
import { newId } from '#core/ids.ts'
import { startRounds } from '#core/log/index.ts'
import type { Pause } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs } from '#core/time.ts'
import type { Protocol } from '../message.ts'
import { protocolNumber } from '../message.ts'
import type { OpenSessions, PresenceChange } from './repository.ts'
import { clearDeadNodes, clearNode, sayAlive, writePresence } from './repository.ts'

/**
 * Every method returns at once and never throws. Keys are those of `MessageAccess.publisherKey`; for users (null) there is
 * nothing to tell. Each `online` has one `offline`, each `subscribed` one `unsubscribed`, whatever ends the session.
 */
export type Presence = {
  /** A session of the client began: an MQTT connection, a WebSocket, an event stream, an observation. */
  online(clientKey: number, protocol: Protocol): void
  offline(clientKey: number, protocol: Protocol): void
  /** An open session of the client subscribed to `count` more filters. Where a session is one subscription: both calls. */
  subscribed(clientKey: number, protocol: Protocol, count?: number): void
  unsubscribed(clientKey: number, protocol: Protocol, count?: number): void
  /** So many messages were handed to a session of the client. Cheap: call it per message or per batch. */
  delivered(clientKey: number, messages: number): void
  /** Ends all sessions of this node, and writes what is not written. */
  stop(): Promise<void>
}

const WRITE_INTERVAL_MS = 1000
/** Clients of one transaction. */
const MAX_CHANGES = 5000
/** A node says that it lives so often. */
const BEAT_MS = 5000
/** And is taken for dead after so long: several beats, and a database that was away for a while. */
const DEAD_AFTER_SECONDS = 20
/** Backoff after a failed round doubles up to this. */
const MAX_BACKOFF_MS = 10_000
/** Clients whose count of deliveries waits to be written while the database is away; beyond, counts are lost. */
const MAX_COUNTED = 200_000

export type PresenceOptions = {
  database: Database
  logger: Logger
  /** Tests shorten these. */
  writeIntervalMs?: number
  deadAfterSeconds?: number
}

export function startPresence(options: PresenceOptions): Presence {
  const { database, logger, writeIntervalMs = WRITE_INTERVAL_MS, deadAfterSeconds = DEAD_AFTER_SECONDS } = options
  const node = newId()
  const open = new Map<number, OpenSessions[]>()
  /** Clients of whom a session began or ended since the last write. */
  let changed = new Set<number>()
  const delivered = new Map<number, number>()
  let beatAtMs = -Infinity
  let backoffMs = writeIntervalMs

  function sessionsOf(clientKey: number, protocol: Protocol): OpenSessions {
    changed.add(clientKey)
    const mine = open.get(clientKey) ?? []
    open.set(clientKey, mine)
    const number = protocolNumber(protocol)
    const known = mine.find((sessions) => sessions.protocol === number)
    if (known !== undefined) return known
    const sessions = { protocol: number, sessions: 0, subscriptions: 0 }
    mine.push(sessions)
    return sessions
  }

  function count(clientKey: number, messages: number): void {
    const before = delivered.get(clientKey)
    if (before !== undefined || delivered.size < MAX_COUNTED) delivered.set(clientKey, (before ?? 0) + messages)
  }

  /** What is to be written next, by the order of the keys; it is no longer waiting. */
  function takeChanges(): PresenceChange[] {
    const keys = new Set(changed)
    for (const key of delivered.keys()) {
      if (keys.size >= MAX_CHANGES) break
      keys.add(key)
    }
    return [...keys]
      .slice(0, MAX_CHANGES)
      .toSorted((left, right) => left - right)
      .map((clientKey) => {
        const isChanged = changed.delete(clientKey)
        const outbound = delivered.get(clientKey) ?? 0
        delivered.delete(clientKey)
        const sessions = (open.get(clientKey) ?? []).filter((one) => one.sessions > 0).map((one) => ({ ...one }))
        if (sessions.length === 0) open.delete(clientKey)
        return { clientKey, isChanged, outbound, sessions }
      })
  }

  function putBack(changes: readonly PresenceChange[]): void {
    for (const { clientKey, isChanged, outbound } of changes) {
      if (isChanged) changed.add(clientKey)
      if (outbound > 0) count(clientKey, outbound)
    }
  }

  async function beat(): Promise<void> {
    const isFirst = beatAtMs === -Infinity
    const wasKnown = await sayAlive(database.db, node)
    beatAtMs = monotonicMs()
    // Taken for dead: what was written is gone.
    if (!wasKnown && !isFirst) changed = new Set([...changed, ...open.keys()])
    await clearDeadNodes(database, deadAfterSeconds)
  }

  async function writeAll(): Promise<void> {
    while (changed.size > 0 || delivered.size > 0) {
      const changes = takeChanges()
      try {
        const left = await writePresence(database, node, changes)
        putBack(left)
        if (left.length > 0) return
      } catch (error) {
        putBack(changes)
        throw error
      }
    }
  }

  async function round(): Promise<Pause> {
    try {
      if (monotonicMs() - beatAtMs >= BEAT_MS) await beat()
      await writeAll()
      backoffMs = writeIntervalMs
      return { pauseMs: writeIntervalMs, isPokable: false }
    } catch (error) {
      logger.warn({ err: error }, 'who is online cannot be written; tried again')
      // The row of this node may be gone: it is made anew, with everything that belongs to it.
      beatAtMs = Math.min(beatAtMs, monotonicMs() - BEAT_MS)
      backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: backoffMs, isPokable: false }
    }
  }

  const rounds = startRounds(round)
  return {
    online(clientKey, protocol) {
      sessionsOf(clientKey, protocol).sessions++
    },
    offline(clientKey, protocol) {
      sessionsOf(clientKey, protocol).sessions--
    },
    subscribed(clientKey, protocol, filters = 1) {
      sessionsOf(clientKey, protocol).subscriptions += filters
    },
    unsubscribed(clientKey, protocol, filters = 1) {
      sessionsOf(clientKey, protocol).subscriptions -= filters
    },
    delivered: count,
    async stop() {
      await rounds.stop()
      try {
        await writeAll()
        await clearNode(database, node)
      } catch (error) {
        logger.warn({ err: error }, 'that clients are offline could not be written; other nodes find out')
      }
    },
  }
}
