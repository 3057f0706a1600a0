/**
 * Commits an empty transaction again and again. With synchronous replication a COMMIT waits for a standby, without an error and
 * without an end: while no standby answers, new messages are refused instead of waiting until their deadline.
 */
import type { Database } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { sleep, withDeadline } from '#core/time.ts'

const INTERVAL_MS = 1000
/** A COMMIT that takes longer waits for a standby that does not answer. */
const STALLED_MS = 3000
/** A connection on which nothing is answered for this long may be broken without a sign: another connection asks about it. */
const SILENCE_MS = 30_000
const CONNECTION_NAME = 'skein commit probe'

export type CommitProbe = {
  /** False while a COMMIT waits for standbys that do not answer. A server that is unavailable shows itself by errors. */
  canCommit(): boolean
  /** Resolves when a COMMIT was answered. Rejects with `timeout`, or with the reason of the signal. */
  committed(deadlineMs: number, signal: AbortSignal): Promise<void>
  stop(): Promise<void>
}

export type CommitProbeOptions = {
  database: Database
  logger: Logger
  intervalMs?: number
  stalledMs?: number
  silenceMs?: number
}

export function startCommitProbe(options: CommitProbeOptions): CommitProbe {
  const { database, logger, intervalMs = INTERVAL_MS, stalledMs = STALLED_MS, silenceMs = SILENCE_MS } = options
  const stopping = new AbortController()
  let client: Awaited<ReturnType<Database['dedicated']>> | undefined
  /** The process id of the server process of `client`. */
  let pid = 0
  let isStalled = false
  const first = Promise.withResolvers<void>()

  function stalled(): void {
    if (!isStalled)
      logger.error('COMMIT is not answered: no synchronous standby is available; new messages are refused')
    isStalled = true
  }

  function answered(): void {
    if (isStalled) logger.info('COMMIT is answered again, or fails; messages are accepted again')
    isStalled = false
  }

  /** Whether the server still executes the COMMIT. An unavailable server gives no reason to keep the connection. */
  async function isWaiting(): Promise<boolean> {
    try {
      const { rows } = await sql<{ waits: boolean }>`SELECT EXISTS (SELECT FROM pg_stat_activity
        WHERE pid = ${pid} AND application_name = ${CONNECTION_NAME} AND wait_event = 'SyncRep') AS waits`.execute(
        database.db,
      )
      return rows[0]?.waits === true
    } catch {
      return false
    }
  }

  /**
   * The server does not notice the end of a connection whose COMMIT waits for a standby. So a silent connection is replaced only
   * when the server no longer has it: during a long outage the replacements would use up `max_connections`.
   */
  async function commit(): Promise<void> {
    if (client === undefined) {
      client = await database.dedicated(CONNECTION_NAME)
      const asked = client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
      const { rows } = await withDeadline(asked, silenceMs, 'a statement')
      pid = rows[0]?.pid ?? 0
    }
    if (stopping.signal.aborted) return
    // Transactional, so that it waits for standbys as every other COMMIT does.
    const committed = client.query("SELECT pg_logical_emit_message(true, 'skein', '')")
    for (;;) {
      try {
        return void (await withDeadline(committed, silenceMs, 'a COMMIT'))
      } catch (error) {
        if (kindOf(error) !== 'timeout' || !(await isWaiting())) throw error
      }
    }
  }

  /** A new connection begins the epoch of positions after a promotion, which is a COMMIT too. */
  async function probe(): Promise<void> {
    let isLate = false
    const late = setTimeout(() => {
      isLate = true
      stalled()
    }, stalledMs)
    try {
      await commit()
      first.resolve()
      answered()
    } catch {
      void client?.end().catch(() => undefined)
      client = undefined
      if (!isLate) answered()
    } finally {
      clearTimeout(late)
    }
  }

  const loop = (async () => {
    while (!stopping.signal.aborted) {
      await probe()
      await sleep(intervalMs, stopping.signal).catch(() => undefined)
    }
  })()
  return {
    canCommit: () => !isStalled,
    async committed(deadlineMs, signal) {
      const aborted = Promise.withResolvers<never>()
      const abort = () => aborted.reject(signal.reason as Error)
      signal.addEventListener('abort', abort)
      try {
        await withDeadline(Promise.race([first.promise, aborted.promise]), deadlineMs, 'a COMMIT')
      } finally {
        signal.removeEventListener('abort', abort)
      }
    },
    async stop() {
      stopping.abort()
      // Ends a COMMIT that waits, too.
      await client?.end().catch(() => undefined)
      await loop
      // The one that the loop opened meanwhile.
      await client?.end().catch(() => undefined)
    },
  }
}
