/**
 * The tail of a log for caches: every node reads it at a short interval on a connection of its own, sooner when a hint
 * says that something was written. While the tail cannot be read, `isFresh` turns false and whoever answers from a
 * cache that depends on it must refuse (mechanisms: a revocation is in force everywhere in less than a second).
 */
import type pg from 'pg'
import type { Database } from '../database/index.ts'
import type { Logger } from '../logging/index.ts'
import { monotonicMs, withDeadline } from '../time.ts'
import type { LogRow, LogTable } from './read.ts'
import { currentSnapshot, readNew } from './read.ts'
import type { Pause } from './rounds.ts'
import { startRounds } from './rounds.ts'

/** How often the tail is read when nobody hints. */
export const TAIL_INTERVAL_MS = 250
/** A node whose last successful read began longer ago may not answer from its caches. */
export const TAIL_STALE_MS = 900
/** Connecting and one read may each take so long before the connection is given up. */
const READ_DEADLINE_MS = 600
/** More rows since the last read than this are not worth reading: the consumer forgets everything instead. */
const MAX_ROWS = 20_000

export type LogTail = {
  /** Everything that was committed longer than `TAIL_STALE_MS` ago has been handed to `onRows` or led to `onReset`. */
  isFresh(): boolean
  /** Something was written: read now. Cheap, may be called at any rate. */
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
   * Called when rows may have been lost sight of: the connection is a new one, so the server may have lost its last
   * commits or be another one, or there were too many. The consumer must forget everything.
   */
  onReset: () => void
  intervalMs?: number
  maxRows?: number
}

/** Starts at the log's present end: rows committed before the call are not delivered. */
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
  let isAway = false
  const isFresh = () => monotonicMs() - freshSinceMs <= TAIL_STALE_MS

  async function readOnce(): Promise<void> {
    const beganMs = monotonicMs()
    const isNew = client === undefined
    client ??= await database.dedicated(connectionName, READ_DEADLINE_MS)
    const { rows, snapshot } = await withDeadline(
      readNew(client, table, since, maxRows),
      READ_DEADLINE_MS,
      'reading the log',
    )
    // Only what was handed on counts as read: a consumer that throws gets the same rows again.
    if (rows !== undefined && rows.length > 0) onRows(rows)
    if (isNew || rows === undefined) onReset()
    since = snapshot
    freshSinceMs = beganMs
  }

  async function round(): Promise<Pause> {
    try {
      await readOnce()
      if (isAway) logger.info({ log: table.name }, 'the changelog can be read again')
      isAway = false
      return { pauseMs: intervalMs, isPokable: true }
    } catch (error) {
      const broken = client
      client = undefined
      void broken?.end().catch(() => undefined)
      if (!isAway && !isFresh()) {
        isAway = true
        const text = 'the log cannot be read; answers from caches are refused until it can'
        logger.warn({ err: error, log: table.name }, text)
      }
      return { pauseMs: intervalMs, isPokable: false }
    }
  }

  const rounds = startRounds(round)
  return {
    isFresh,
    wake: rounds.wake,
    async stop() {
      await rounds.stop()
      await client?.end().catch(() => undefined)
    },
  }
}
