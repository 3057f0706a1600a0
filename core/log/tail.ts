/**
 * The tail of a log for caches: every node reads it at a short interval on a connection of its own, sooner when a hint
 * says that something was written. While the tail cannot be read, `isFresh` turns false and whoever answers from a
 * cache that depends on it must refuse (mechanisms: a revocation is in force everywhere in less than a second).
 */
import type pg from 'pg'
import type { Database } from '../database/index.ts'
import type { Logger } from '../logging/index.ts'
import { monotonicMs, sleep, withDeadline } from '../time.ts'
import type { LogRow, LogTable } from './read.ts'
import { currentHorizon, readRecent } from './read.ts'

/** How often the tail is read when nobody hints. */
export const TAIL_INTERVAL_MS = 250
/** A node whose last successful read began longer ago may not answer from its caches. */
export const TAIL_STALE_MS = 900
/** One read may take so long before its connection is given up. */
const READ_DEADLINE_MS = 600
/** A commit that wrote more rows than this is read in several pages. */
const PAGE_ROWS = 5000

export type LogTail = {
  /** Everything that was committed longer than `TAIL_STALE_MS` ago has been handed to `onRows`. */
  isFresh(): boolean
  /** Something was written: read now. Cheap, may be called at any rate. */
  poke(): void
  /** Resolves when everything committed before the call has been handed on. */
  caughtUp(): Promise<void>
  stop(): Promise<void>
}

export type LogTailOptions = {
  database: Database
  table: LogTable
  logger: Logger
  /** Called with rows in position order; a row may come more than once. Must not throw. */
  onRows: (rows: readonly LogRow[]) => void
  /** Called after a gap in which rows may have been lost sight of; the consumer must forget everything. */
  onReset: () => void
  intervalMs?: number
}

/** Starts at the log's present end: rows committed before the call are not delivered. */
export async function startLogTail(options: LogTailOptions): Promise<LogTail> {
  const { database, table, logger, onRows, onReset, intervalMs = TAIL_INTERVAL_MS } = options
  const stopping = new AbortController()
  const connectionName = `skein ${table.name} tail`
  let client: pg.Client | undefined = await database.dedicated(connectionName)
  let fromXid = await currentHorizon(client)
  let seen = new Set<number>()
  let freshSinceMs = monotonicMs()
  let wake: AbortController | undefined
  let poked = false
  let waiters: (() => void)[] = []

  async function readOnce(): Promise<void> {
    const beganMs = monotonicMs()
    const served = waiters
    waiters = []
    poked = false
    try {
      client ??= await withDeadline(database.dedicated(connectionName), READ_DEADLINE_MS, 'connecting to the database')
      const { rows, horizon } = await withDeadline(
        readRecent(client, table, fromXid, PAGE_ROWS),
        READ_DEADLINE_MS,
        'reading the log',
      )
      const fresh = rows.filter((row) => !seen.has(row.position.seq))
      fromXid = horizon
      seen = new Set(rows.filter((row) => row.position.xid >= horizon).map((row) => row.position.seq))
      if (fresh.length > 0) onRows(fresh)
      freshSinceMs = beganMs
      for (const resolve of served) resolve()
    } catch (error) {
      waiters.push(...served)
      const broken = client
      client = undefined
      void broken?.end().catch(() => undefined)
      if (stopping.signal.aborted) return
      if (monotonicMs() - freshSinceMs > TAIL_STALE_MS) {
        logger.warn(
          { err: error, log: table.name },
          'the log cannot be read; answers from caches are refused until it can',
        )
      }
    }
  }

  async function loop(): Promise<void> {
    while (!stopping.signal.aborted) {
      const wasFresh = monotonicMs() - freshSinceMs <= TAIL_STALE_MS
      await readOnce()
      // Rows are never skipped (the position stays), but a consumer that answered from elsewhere meanwhile starts anew.
      if (!wasFresh && monotonicMs() - freshSinceMs <= TAIL_STALE_MS) onReset()
      if (poked) continue
      wake = new AbortController()
      await sleep(intervalMs, AbortSignal.any([wake.signal, stopping.signal])).catch(() => undefined)
      wake = undefined
    }
  }

  const running = loop()
  return {
    isFresh: () => monotonicMs() - freshSinceMs <= TAIL_STALE_MS,
    poke() {
      poked = true
      wake?.abort()
    },
    caughtUp() {
      return new Promise((resolve) => {
        waiters.push(resolve)
        poked = true
        wake?.abort()
      })
    },
    async stop() {
      stopping.abort()
      await running
      for (const resolve of waiters) resolve()
      await client?.end().catch(() => undefined)
    },
  }
}
