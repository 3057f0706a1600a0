/**
 * Commits an empty transaction again and again. With synchronous replication a COMMIT waits for a standby, without an error and
 * without an end: while no standby answers, new messages are refused instead of waiting until their deadline.
 */
import type { Database } from '../database/index.ts'
import { kindOf } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'
import { sleep, withDeadline } from '../time.ts'

const INTERVAL_MS = 1000
/** A COMMIT that takes longer waits for a standby that does not answer. */
const STALLED_MS = 3000
/** A connection on which nothing is answered for this long may be broken without a sign. */
const SILENCE_MS = 30_000

export type CommitProbe = {
  /** False while a COMMIT waits for standbys that do not answer. A server that is unavailable shows itself by errors. */
  canCommit(): boolean
  stop(): Promise<void>
}

export type CommitProbeOptions = { database: Database; logger: Logger; intervalMs?: number; stalledMs?: number }

export function startCommitProbe(options: CommitProbeOptions): CommitProbe {
  const { database, logger, intervalMs = INTERVAL_MS, stalledMs = STALLED_MS } = options
  const stopping = new AbortController()
  let client: Awaited<ReturnType<Database['dedicated']>> | undefined
  let isStalled = false

  function stalled(): void {
    if (!isStalled)
      logger.error('COMMIT is not answered: no synchronous standby is available; new messages are refused')
    isStalled = true
  }

  function answered(): void {
    if (isStalled) logger.info('COMMIT is answered again, or fails; messages are accepted again')
    isStalled = false
  }

  async function commitOnce(): Promise<void> {
    client ??= await database.dedicated('skein commit probe')
    if (stopping.signal.aborted) return
    const late = setTimeout(stalled, stalledMs)
    try {
      // Transactional, so that it waits for standbys as every other COMMIT does.
      const commit = client.query("SELECT pg_logical_emit_message(true, 'skein', '')")
      await withDeadline(commit, SILENCE_MS, 'a COMMIT')
    } finally {
      clearTimeout(late)
    }
  }

  const loop = (async () => {
    while (!stopping.signal.aborted) {
      try {
        await commitOnce()
        answered()
      } catch (error) {
        void client?.end().catch(() => undefined)
        client = undefined
        if (kindOf(error) !== 'timeout') answered()
      }
      await sleep(intervalMs, stopping.signal).catch(() => undefined)
    }
  })()
  return {
    canCommit: () => !isStalled,
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
