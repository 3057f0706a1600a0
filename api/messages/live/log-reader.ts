/**
 * Reads the changelog of batches for all followers of this process: at once after a local commit or a hint, otherwise at a short
 * interval, and not while there are no followers. A new follower joins at the end of a read.
 */
import type pg from 'pg'
import type { Database } from '#core/database/index.ts'
import { comparePositions, currentSnapshot, readNew, sees } from '#core/changelog/index.ts'
import type { LogRow, LogSnapshot } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startRounds } from '#core/rounds.ts'
import type { Pause, Rounds } from '#core/rounds.ts'
import { withDeadline } from '#core/time.ts'
import { BATCH_LOG, batchOf, tokenOf } from './batch-log.ts'
import type { Follower } from './follower.ts'
import type { Followers } from './followers.ts'
import type { LiveMessage } from './live-message.ts'
import { LogMark } from './mark.ts'
import type { RecentBatches } from './recent.ts'
import type { StoredBatch } from './stored.ts'
import { loadBatches, loadWanted } from './stored.ts'
import type { LiveToken } from './token.ts'

/** The polling interval without hints. */
const INTERVAL_MS = 250
/** The interval without followers; a new follower wakes the reader. */
const IDLE_MS = 60_000
const MAX_BACKOFF_MS = 2000
/** The deadline for connecting, and for each read. The connection is closed after it. */
const READ_DEADLINE_MS = 5000
/** The maximum number of batches of one read. A process that has missed more ends its streams, which clients resume. */
const MAX_BATCHES = 5000
/** The number of batches that a follower may still miss when it joins; with more it must catch up first. */
const MAX_JOINING_BATCHES = 400

type Joining = { follower: Follower; after: LiveToken | undefined; done: (joined: boolean) => void }

export type LogReaderDeps = { database: Database; logger: Logger; followers: Followers; recent: RecentBatches }

export class LogReader {
  readonly #deps: LogReaderDeps
  readonly #rounds: Rounds
  #client: pg.Client | undefined
  #since: LogSnapshot | undefined
  /** Followers that join at the end of the next read, from now on or after a token. */
  #joining: Joining[] = []
  /** Callers that wait for the end of the next read. */
  #marking: ((mark: LogMark) => void)[] = []
  #backoffMs = INTERVAL_MS
  #isStopped = false

  constructor(deps: LogReaderDeps) {
    this.#deps = deps
    this.#rounds = startRounds(() => this.#round())
  }

  /** The position of the live followers: everything before it was delivered. Undefined without followers. */
  get position(): LiveToken | undefined {
    return this.#since === undefined ? undefined : tokenOf(this.#since)
  }

  /** Reads now. */
  wake(): void {
    this.#rounds.wake()
  }

  /** The follower joins at the end of the next read. False when it must catch up first. */
  join(follower: Follower, after: LiveToken | undefined): Promise<boolean> {
    const joined = new Promise<boolean>((done) => this.#joining.push({ follower, after, done }))
    this.wake()
    return joined
  }

  /** Resolves at the end of a read that begins after the call: everything that it saw was delivered to the live followers. */
  mark(): Promise<LogMark> {
    const marked = new Promise<LogMark>((done) => this.#marking.push(done))
    this.wake()
    return marked
  }

  /** Stops delivery; the current read ends. */
  endReading(): void {
    this.#isStopped = true
  }

  async stop(): Promise<void> {
    this.endReading()
    await this.#rounds.stop()
    for (const { done } of this.#joining) done(false)
    this.#markAll(this.#marking, undefined)
    await this.#client?.end().catch(() => undefined)
  }

  async #round(): Promise<Pause> {
    const { followers, recent, logger } = this.#deps
    if (this.#isStopped || followers.size === 0) {
      this.#since = undefined
      recent.clear()
      this.#markAll(this.#marking, undefined)
      this.#marking = []
      return { pauseMs: IDLE_MS, isWakeable: true }
    }
    try {
      await this.#readOnce()
      this.#backoffMs = INTERVAL_MS
      return { pauseMs: INTERVAL_MS, isWakeable: true }
    } catch (error) {
      logger.warn({ err: error }, 'failed to read the changelog of messages for followers; retrying')
      const broken = this.#client
      this.#client = undefined
      void broken?.end().catch(() => undefined)
      this.#backoffMs = Math.min(this.#backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: this.#backoffMs, isWakeable: false }
    }
  }

  async #readOnce(): Promise<void> {
    this.#client ??= await this.#deps.database.dedicated('skein live messages', READ_DEADLINE_MS)
    const connection = this.#client
    // Followers that join during this read may have a token beyond its snapshot: the next read takes them.
    const waiting = this.#joining
    const marking = this.#marking
    this.#joining = []
    this.#marking = []
    try {
      const snapshot = await this.#deliverNew(connection)
      this.#markAll(marking.splice(0), snapshot)
      await this.#handOver(connection, waiting, snapshot)
    } finally {
      // Followers that could not join are retried with the next read.
      this.#joining.unshift(...waiting)
      this.#marking.unshift(...marking)
    }
  }

  #markAll(marking: readonly ((mark: LogMark) => void)[], snapshot: LogSnapshot | undefined): void {
    const mark = new LogMark(snapshot)
    for (const done of marking) done(mark)
  }

  /** Delivers the batches since the last read. */
  async #deliverNew(connection: pg.Client): Promise<LogSnapshot> {
    const { followers } = this.#deps
    const before = this.#since ?? (await withDeadline(currentSnapshot(connection), READ_DEADLINE_MS, 'reading the log'))
    const { rows, snapshot } = await readLog(connection, before, MAX_BATCHES)
    if (rows === undefined) followers.endAll('behind')
    else if (rows.length > 0) {
      followers.deliver(await this.#messagesOf(rows), tokenOf(before), tokenOf(snapshot))
    }
    // While nothing is published the snapshot stays the same, so that stored positions need not be rewritten.
    this.#since = rows?.length === 0 ? before : snapshot
    return snapshot
  }

  async #messagesOf(rows: readonly LogRow[]): Promise<LiveMessage[]> {
    const { database, followers, recent } = this.#deps
    const known = new Map<number, readonly LiveMessage[]>()
    const missing: StoredBatch[] = []
    for (const row of rows) {
      const messages = recent.take(row.position.seq, followers.state)
      if (messages === undefined) missing.push(batchOf(row))
      else known.set(row.position.seq, messages)
    }
    const loaded = await loadBatches(database.db, missing, followers.channels)
    return rows.flatMap(({ position }) => known.get(position.seq) ?? loaded.get(position.seq) ?? [])
  }

  /** Delivers the messages between the token of each joining follower and this snapshot; then the follower is live. */
  async #handOver(connection: pg.Client, waiting: Joining[], snapshot: LogSnapshot): Promise<void> {
    const { database, followers } = this.#deps
    for (let next = waiting[0]; next !== undefined; next = waiting[0]) {
      const { follower, after, done } = next
      const rows = after === undefined ? [] : await readBetween(connection, after, snapshot)
      if (rows !== undefined) {
        if (after !== undefined) {
          const messages = await loadWanted(database.db, follower, rows.map(batchOf))
          follower.deliverStep(messages, after, tokenOf(snapshot))
        }
        followers.attach(follower)
        if (after !== undefined) follower.live()
      }
      waiting.shift()
      done(rows !== undefined)
    }
  }
}

function readLog(connection: pg.Client, since: LogSnapshot, maxBatches: number): ReturnType<typeof readNew> {
  return withDeadline(readNew(connection, BATCH_LOG, since, maxBatches), READ_DEADLINE_MS, 'reading the log')
}

/** Batches that `until` saw and the token did not; undefined when there are too many for one step. */
async function readBetween(connection: pg.Client, after: LiveToken, until: LogSnapshot): Promise<LogRow[] | undefined> {
  const { rows } = await readLog(connection, after.snapshot, MAX_JOINING_BATCHES)
  return rows?.filter(({ position }) => comparePositions(position, after.position) > 0 && sees(until, position.xid))
}
