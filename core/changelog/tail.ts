/**
 * The tail of a changelog for caches: every node polls it on a connection of its own, and reads it at once after a hint. While
 * the tail cannot be read, `isFresh` is false and the caches that depend on it must not be used. A revocation is therefore in
 * force on every node in less than a second.
 */
import type pg from 'pg'
import { isOutage } from '../database/index.ts'
import type { Database } from '../database/index.ts'
import type { Logger } from '../logging/index.ts'
import { monotonicMs, withDeadline } from '../time.ts'
import { CHANGELOG_METRICS } from './metrics.ts'
import type { LogRow, LogTable } from './read.ts'
import { currentSnapshot, readNew } from './read.ts'
import type { Pause } from '../rounds.ts'
import { startRounds } from '../rounds.ts'

/** The polling interval without hints. */
export const TAIL_INTERVAL_MS = 250
/** The age of the last successful read above which a node must not answer from its caches. */
export const TAIL_STALE_MS = 900
/** The deadline for connecting, and for each read. The connection is closed after it. */
const READ_DEADLINE_MS = 600
/** The maximum number of rows of one read. If more have been added since the last read, the consumer is reset instead. */
const MAX_ROWS = 20_000

export type LogTail = {
  /** Everything that was committed longer than `TAIL_STALE_MS` ago has been handed to `onRows` or led to `onReset`. */
  isFresh(): boolean
  /** The reason why it is not fresh: the database is unavailable, or reads fail or are late for another reason. */
  staleBecause(): 'database' | 'reads' | undefined
  /** Reads now. May be called at any rate. */
  wake(): void
  stop(): Promise<void>
}

export type LogTailOptions = {
  database: Database
  table: LogTable
  logger: Logger
  /** Called with the rows that became visible since the last call, in position order. */
  onRows: (rows: readonly LogRow[]) => void
  /**
   * Called when rows may have been missed: the connection is new, so the server may have been restored or replaced, or there
   * were too many rows. The consumer must discard its whole state.
   */
  onReset: () => void
  intervalMs?: number
  maxRows?: number
}

/** Starts at the present end of the changelog: rows committed before the call are not delivered. */
export async function startLogTail(options: LogTailOptions): Promise<LogTail> {
  const { database, table, logger, onRows, onReset, intervalMs = TAIL_INTERVAL_MS, maxRows = MAX_ROWS } = options
  const connectionName = `skein ${table.name} tail`
  const first = await database.dedicated(connectionName)
  let client: pg.Client | undefined = first
  let since = await currentSnapshot(first).catch((error: unknown) => {
    void first.end().catch(() => undefined)
    throw error
  })
  let freshSinceMs = monotonicMs()
  let isUnavailable = false
  let failure: unknown
  const isFresh = () => monotonicMs() - freshSinceMs <= TAIL_STALE_MS
  const removeAge = CHANGELOG_METRICS.tailAge.from(() => [
    { labels: { log: table.name }, value: (monotonicMs() - freshSinceMs) / 1000 },
  ])

  async function readOnce(): Promise<void> {
    const beganMs = monotonicMs()
    const isNew = client === undefined
    client ??= await database.dedicated(connectionName, READ_DEADLINE_MS)
    const { rows, snapshot } = await withDeadline(
      readNew(client, table, since, maxRows),
      READ_DEADLINE_MS,
      'reading the log',
    )
    // The position advances after `onRows` returns: a consumer that throws receives the same rows again.
    if (rows !== undefined && rows.length > 0) onRows(rows)
    if (isNew || rows === undefined) onReset()
    since = snapshot
    freshSinceMs = beganMs
  }

  async function round(): Promise<Pause> {
    try {
      await readOnce()
      if (isUnavailable) logger.info({ log: table.name }, 'the changelog can be read again')
      isUnavailable = false
      failure = undefined
      return { pauseMs: intervalMs, isWakeable: true }
    } catch (error) {
      failure = error
      const broken = client
      client = undefined
      void broken?.end().catch(() => undefined)
      if (!isUnavailable && !isFresh()) {
        isUnavailable = true
        const text = 'failed to read the changelog; cached answers are refused until a read succeeds'
        logger.warn({ err: error, log: table.name }, text)
      }
      return { pauseMs: intervalMs, isWakeable: false }
    }
  }

  const rounds = startRounds(round)
  return {
    isFresh,
    staleBecause() {
      if (isFresh()) return undefined
      return isOutage(failure) ? 'database' : 'reads'
    },
    wake: rounds.wake,
    async stop() {
      removeAge()
      await rounds.stop()
      await client?.end().catch(() => undefined)
    },
  }
}
