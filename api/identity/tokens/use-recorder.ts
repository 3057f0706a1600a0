/**
 * Maintains `last_used_at` of sessions, keys and tokens without a write per request: uses are collected and written
 * together every few seconds and at shutdown, at most once a minute for each token.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import type { Database } from '#core/database/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'

export type UsedTable = 'sessions' | 'api_keys' | 'pats'

export type UseRecorder = {
  used(table: UsedTable, id: string): void
  /** Writes the collected uses. Each round and `stop` call it. */
  flush(): Promise<void>
  stop(): Promise<void>
}

export const FLUSH_INTERVAL_MS = 3000
/** Resolution of the stored time. */
const RESOLUTION_MS = 60_000
/** Maximum number of tokens whose last write is cached, and of tokens that wait for the next write. */
const MAX_TOKENS = 50_000

export function startUseRecorder(database: Database, flushIntervalMs = FLUSH_INTERVAL_MS): UseRecorder {
  const recentlyWritten = new BoundedCache<string, true>({ maxEntries: MAX_TOKENS, ttl: RESOLUTION_MS })
  let waiting = new Map<string, { table: UsedTable; id: string; atMs: number }>()

  async function flush(): Promise<void> {
    const uses = [...waiting.values()]
    waiting = new Map()
    for (const table of ['sessions', 'api_keys', 'pats'] as const) {
      const ours = uses.filter((use) => use.table === table)
      if (ours.length === 0) continue
      const nowMs = monotonicMs()
      // Rows are locked in the order of their ids, so that two nodes cannot deadlock.
      await sql`WITH uses AS (
          SELECT id, now() - make_interval(secs => age) AS at
            FROM unnest(${ours.map((use) => use.id)}::uuid[], ${ours.map((use) => (nowMs - use.atMs) / 1000)}::float8[]) AS used (id, age)),
        locked AS MATERIALIZED (
          SELECT t.id FROM ${sql.table(table)} t JOIN uses USING (id) ORDER BY t.id FOR NO KEY UPDATE OF t)
        UPDATE ${sql.table(table)} t SET last_used_at = uses.at FROM locked JOIN uses USING (id)
         WHERE t.id = locked.id AND (t.last_used_at IS NULL OR t.last_used_at < uses.at)`.execute(database.db)
    }
  }

  const rounds = startPeriodicRounds({
    firstPauseMs: flushIntervalMs,
    pauseMs: flushIntervalMs,
    round: flush,
    // A failed write is ignored: the next use writes a newer time.
    onFailure: () => undefined,
  })

  return {
    used(table, id) {
      if (recentlyWritten.has(id) || waiting.size >= MAX_TOKENS) return
      recentlyWritten.set(id, true)
      waiting.set(id, { table, id, atMs: monotonicMs() })
    },
    flush,
    async stop() {
      await rounds.stop()
      await flush().catch(() => undefined)
    },
  }
}
