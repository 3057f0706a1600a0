/**
 * Tracks which clients have an open session on any node, and how many messages were delivered to them. Adapters report events, which
 * are collected in memory and written once a second, so sessions wait for no round trip. When a node is dead, other nodes remove its
 * sessions, so that it leaves no client online.
 */
import type { Database } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { LivingNode } from '#core/nodes/index.ts'
import { startRounds } from '#core/rounds.ts'
import type { Pause, Rounds } from '#core/rounds.ts'
import type { Protocol } from '../model/message.ts'
import { protocolNumber } from '../model/message.ts'
import type { OpenSessions, PresenceChange, Unparsed } from './repository.ts'
import { removePresenceOf, writePresence } from './repository.ts'

const WRITE_INTERVAL_MS = 1000
/** The number of clients of one transaction. */
const MAX_CHANGES = 5000
/** The maximum backoff after failed rounds. */
const MAX_BACKOFF_MS = 10_000
/** The number of clients whose delivery counts are kept while the database is unavailable; above it, counts are lost. */
const MAX_COUNTED = 200_000
/** The maximum length of a reason that the owner of a client sees. */
const MAX_REASON_CHARS = 300

export type PresenceOptions = {
  database: Database
  logger: Logger
  /** This process. */
  node: LivingNode
  /** Overrides for tests. */
  writeIntervalMs?: number
}

/**
 * Every method returns at once and never throws. Keys are those of `ChannelAccess.publisherKey`; users (null) are not reported. Each
 * `online` needs one `offline`, and each `subscribed` one `unsubscribed`, however the session ends.
 */
export class Presence {
  readonly #options: PresenceOptions
  readonly #writeIntervalMs: number
  readonly #rounds: Rounds
  readonly #open = new Map<number, OpenSessions[]>()
  /** Clients with sessions that began or ended since the last write. */
  #changed = new Set<number>()
  readonly #delivered = new Map<number, number>()
  readonly #unparsed = new Map<number, Unparsed>()
  #backoffMs: number

  constructor(options: PresenceOptions) {
    this.#options = options
    this.#writeIntervalMs = options.writeIntervalMs ?? WRITE_INTERVAL_MS
    this.#backoffMs = this.#writeIntervalMs
    // Others removed its sessions.
    options.node.onDeclaredDead(() => {
      this.#changed = new Set([...this.#changed, ...this.#open.keys()])
    })
    this.#rounds = startRounds(() => this.#round())
  }

  /** A session of the client began: an MQTT connection, a WebSocket, an event stream, an observation. */
  online(clientKey: number, protocol: Protocol): void {
    this.#sessionsOf(clientKey, protocol).sessions++
  }

  offline(clientKey: number, protocol: Protocol): void {
    this.#sessionsOf(clientKey, protocol).sessions--
  }

  /** An open session of the client subscribed to `count` more filters. If a session is one subscription, call both methods. */
  subscribed(clientKey: number, protocol: Protocol, count = 1): void {
    this.#sessionsOf(clientKey, protocol).subscriptions += count
  }

  unsubscribed(clientKey: number, protocol: Protocol, count = 1): void {
    this.#sessionsOf(clientKey, protocol).subscriptions -= count
  }

  /** Counts messages that were delivered to a session of the client. Cheap: call it per message or per batch. */
  delivered(clientKey: number, messages: number): void {
    const before = this.#delivered.get(clientKey)
    if (before !== undefined || this.#delivered.size < MAX_COUNTED)
      this.#delivered.set(clientKey, (before ?? 0) + messages)
  }

  /** A message of the client is invalid: refused, or over MQTT stored as bytes or JSON. `reason` is for its owner. */
  unparsed(clientKey: number, reason: string): void {
    const before = this.#unparsed.get(clientKey)
    if (before === undefined && this.#unparsed.size >= MAX_COUNTED) return
    const text = reason.slice(0, MAX_REASON_CHARS).replaceAll('\0', '').toWellFormed()
    this.#unparsed.set(clientKey, { messages: (before?.messages ?? 0) + 1, reason: text, at: new Date() })
  }

  /** Ends all sessions of this node, and writes pending changes. */
  async stop(): Promise<void> {
    const { database, logger, node } = this.#options
    await this.#rounds.stop()
    try {
      await this.#writeAll()
      await database.transaction((tx) => removePresenceOf(tx, node.id, null))
    } catch (error) {
      node.keepRow()
      logger.warn({ err: error }, 'failed to store offline state; other nodes detect it')
    }
  }

  #sessionsOf(clientKey: number, protocol: Protocol): OpenSessions {
    this.#changed.add(clientKey)
    const mine = this.#open.get(clientKey) ?? []
    this.#open.set(clientKey, mine)
    const number = protocolNumber(protocol)
    const known = mine.find((sessions) => sessions.protocol === number)
    if (known !== undefined) return known
    const sessions = { protocol: number, sessions: 0, subscriptions: 0 }
    mine.push(sessions)
    return sessions
  }

  async #round(): Promise<Pause> {
    try {
      await this.#writeAll()
      this.#backoffMs = this.#writeIntervalMs
      return { pauseMs: this.#writeIntervalMs, isWakeable: false }
    } catch (error) {
      this.#options.logger.warn({ err: error }, 'failed to store online state; retrying')
      // The row of this node was removed: it is created again, with all of its sessions.
      if (kindOf(error) === 'invalid_state') await this.#options.node.beat().catch(() => undefined)
      this.#backoffMs = Math.min(this.#backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: this.#backoffMs, isWakeable: false }
    }
  }

  async #writeAll(): Promise<void> {
    while (this.#changed.size > 0 || this.#delivered.size > 0 || this.#unparsed.size > 0) {
      const changes = this.#takeChanges()
      try {
        const left = await writePresence(this.#options.database, this.#options.node.id, changes)
        this.#putBack(left)
        if (left.length > 0) return
      } catch (error) {
        this.#putBack(changes)
        throw error
      }
    }
  }

  /** Takes the pending changes, in the order of the keys. */
  #takeChanges(): PresenceChange[] {
    const keys = new Set(this.#changed)
    for (const counted of [this.#delivered, this.#unparsed]) {
      for (const key of counted.keys()) {
        if (keys.size >= MAX_CHANGES) break
        keys.add(key)
      }
    }
    return [...keys]
      .slice(0, MAX_CHANGES)
      .toSorted((left, right) => left - right)
      .map((clientKey) => {
        const isChanged = this.#changed.delete(clientKey)
        const outbound = this.#delivered.get(clientKey) ?? 0
        this.#delivered.delete(clientKey)
        const unparsed = this.#unparsed.get(clientKey)
        this.#unparsed.delete(clientKey)
        const sessions = (this.#open.get(clientKey) ?? []).filter((one) => one.sessions > 0).map((one) => ({ ...one }))
        if (sessions.length === 0) this.#open.delete(clientKey)
        return { clientKey, isChanged, outbound, unparsed, sessions }
      })
  }

  #putBack(changes: readonly PresenceChange[]): void {
    for (const { clientKey, isChanged, outbound, unparsed } of changes) {
      if (isChanged) this.#changed.add(clientKey)
      if (outbound > 0) this.delivered(clientKey, outbound)
      if (unparsed === undefined) continue
      const later = this.#unparsed.get(clientKey)
      const messages = unparsed.messages + (later?.messages ?? 0)
      this.#unparsed.set(clientKey, { ...(later ?? unparsed), messages })
    }
  }
}
