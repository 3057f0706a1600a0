/**
 * Output of a run besides its small result: log chunks, best effort and bounded, and parts of large results, staged in
 * the database by digest before the result that refers to them is recorded.
 */
import { createHash, type Hash } from 'node:crypto'
import { GroupCommit, type Database } from '#core/database/index.ts'
import { digestOfHash } from '#core/digest.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import { findAssignedRun } from '../writer/end-runs.ts'
import { DEFAULT_OUTPUT_BYTES, MAX_CHUNK_BYTES, MAX_RESULT_BYTES } from '../model/limits.ts'
import type { CountedQuota } from '../writer/counted-quota.ts'
import type { AssignedRun, RunEnding, RunHandle, RunIdentity } from '../model/run.ts'

export type ResultPart = { digest: string; offset: number; data: Uint8Array }
export type LogPart = { stream: number; offset: number; data: Uint8Array; truncated: boolean }

/** Log chunks in the write queue; beyond it they are dropped, because results have priority. */
const MAX_QUEUED_LOGS = 2_000
const MAX_QUEUED_LOG_BYTES = 16 * 1024 * 1024
/** Parts of results of one session in the write queue; beyond it reading from the worker pauses. */
const MAX_QUEUED_PART_BYTES = 16 * 1024 * 1024
/** Overhead of a part besides its bytes. */
const PART_OVERHEAD_BYTES = 1024
/** Parts in one statement: each waits for a commit, and one for every part would hold up the results of others behind them. */
const MAX_WRITTEN_BYTES = 2 * 1024 * 1024

/** stdout, stderr, and the HTTP requests of the run. */
const MAX_STREAM = 3

type StoredPart = LogPart & { runKey: number; domainId: string | null }

/** `written` resolves when the parts that were received so far are in the database. */
type Staging = { digest: string; hash: Hash; sizeBytes: number; written: Promise<void> }
type SessionStaging = {
  runs: Map<string, Staging>
  unwritten: ResultPart[]
  writes: Promise<void>
  queuedBytes: number
  failure: unknown
}

export type RunOutputDeps = {
  database: Database
  logger: Logger
  /** What runs of domains have stored. */
  bytes: Pick<CountedQuota, 'used'>
}

export type RunOutput = ReturnType<typeof createRunOutput>

export function createRunOutput({ database, logger, bytes }: RunOutputDeps) {
  const stagings = new WeakMap<WorkerSession, SessionStaging>()
  let droppedLogs = 0
  const logs = new GroupCommit<StoredPart, void>({
    name: 'the log of runs',
    item: 'output chunk of a run',
    logger,
    maxItems: 500,
    maxBytes: 4 * 1024 * 1024,
    maxQueuedItems: MAX_QUEUED_LOGS,
    maxQueuedBytes: MAX_QUEUED_LOG_BYTES,
    sizeOf: (part) => part.data.byteLength,
    commit: async ({ items }) => {
      const stored = await writeLogs(database, items)
      for (const [runKey, size] of stored) {
        const domainId = items.find((part) => part.runKey === runKey)?.domainId ?? null
        if (domainId !== null) bytes.used(domainId, size)
      }
      return items.map(() => undefined)
    },
  })

  function stagingOf(session: WorkerSession): SessionStaging {
    let staging = stagings.get(session)
    if (staging === undefined) {
      staging = { runs: new Map(), unwritten: [], writes: Promise.resolve(), queuedBytes: 0, failure: undefined }
      stagings.set(session, staging)
    }
    return staging
  }

  /** Writes the next parts of the session, in their order. */
  async function writeSome(staging: SessionStaging): Promise<void> {
    const parts: ResultPart[] = []
    for (let bytes = 0; staging.unwritten[0] !== undefined;) {
      bytes += staging.unwritten[0].data.byteLength
      if (bytes > MAX_WRITTEN_BYTES && parts.length > 0) break
      parts.push(staging.unwritten.shift() as ResultPart)
    }
    // An earlier write took them along.
    if (parts.length === 0) return
    try {
      await writeParts(database, parts)
    } catch (error) {
      staging.failure ??= error
    }
    for (const { data } of parts) staging.queuedBytes -= data.byteLength + PART_OVERHEAD_BYTES
  }

  return {
    get droppedLogs() {
      return droppedLogs
    },

    /**
     * Parts must come in order and without gaps; offset 0 starts over. Resolves when the next part is accepted: a worker
     * can send faster than the database writes. Throws `malformed`, `too_large`.
     */
    async stage(session: WorkerSession, run: RunIdentity, { digest, offset, data }: ResultPart): Promise<void> {
      if (findAssignedRun(session, run) === undefined) return
      const staging = stagingOf(session)
      let result = staging.runs.get(run.id)
      if (offset === 0) {
        result = { digest, hash: createHash('sha256'), sizeBytes: 0, written: Promise.resolve() }
        staging.runs.set(run.id, result)
      }
      if (result === undefined || result.digest !== digest || result.sizeBytes !== offset) {
        throw new ServiceError('malformed', 'parts of a result must come in order and without gaps')
      }
      if (data.byteLength > MAX_CHUNK_BYTES || offset + data.byteLength > MAX_RESULT_BYTES) {
        throw new ServiceError(
          'too_large',
          `a result must be at most ${MAX_RESULT_BYTES} bytes, in parts of at most ${MAX_CHUNK_BYTES} bytes`,
        )
      }
      result.hash.update(data)
      result.sizeBytes += data.byteLength
      // Copies the bytes of the part: the message that contains them can be much larger.
      staging.unwritten.push({ digest, offset, data: new Uint8Array(data) })
      staging.queuedBytes += data.byteLength + PART_OVERHEAD_BYTES
      staging.writes = staging.writes.then(() => writeSome(staging))
      result.written = staging.writes
      if (staging.queuedBytes > MAX_QUEUED_PART_BYTES) await staging.writes
    },

    /**
     * Undefined if the ending has no staged result. Otherwise resolves when its parts are stored: to undefined, or to the error of the database. It
     * never rejects, because its caller reads other results before it waits. Throws `malformed` if the result is incomplete.
     */
    staged(session: WorkerSession, run: RunIdentity, { staged }: RunEnding): Promise<unknown> | undefined {
      if (staged === null || findAssignedRun(session, run) === undefined) return undefined
      const staging = stagings.get(session)
      const result = staging?.runs.get(run.id)
      staging?.runs.delete(run.id)
      if (
        staging === undefined ||
        result?.sizeBytes !== staged.sizeBytes ||
        digestOfHash(result.hash) !== staged.digest
      )
        throw new ServiceError('malformed', 'the staged result is incomplete or does not match its digest')
      return result.written.then(() => staging.failure)
    },

    log(session: WorkerSession, identity: RunIdentity, part: LogPart): void {
      const run = findAssignedRun(session, identity)
      if (run === undefined || part.stream < 1 || part.stream > MAX_STREAM) return
      const maxBytes = run.spec.max_output_bytes ?? DEFAULT_OUTPUT_BYTES
      if (part.offset > maxBytes) return
      const data = new Uint8Array(part.data.subarray(0, maxBytes - part.offset))
      const truncated = part.truncated || data.byteLength < part.data.byteLength
      const store = async ({ key: runKey }: Pick<RunHandle, 'key'>) => {
        await logs
          .submit({ ...part, data, truncated, runKey, domainId: run.spec.domain_id })
          .catch((error: unknown) => {
            droppedLogs += 1
            logger.debug({ err: error }, 'failed to store output of a run; dropping it')
          })
      }
      const earlier = run.logged
      let storing: Promise<void>
      if (run.unrecorded === undefined) storing = store(run)
      else {
        run.unrecorded.holdOutput(data.byteLength)
        storing = run.unrecorded.recorded.then((recorded) => recorded && store(recorded))
      }
      run.logged = earlier === undefined ? storing : Promise.all([earlier, storing]).then(() => undefined)
    },

    /** Removes the output of ended runs whose results have all of it: it is read from there. Never rejects. */
    async dropRepeated(runs: readonly AssignedRun[]): Promise<void> {
      // An earlier attempt may have sent output to another manager.
      const kept = runs.filter(({ logged, attempt }) => logged !== undefined || attempt > 1)
      if (kept.length === 0) return
      await Promise.all(kept.flatMap(({ logged }) => logged ?? []))
      try {
        const { rows } = await sql<{ id: string; bytes: number }>`
          WITH dropped AS (DELETE FROM run_logs l USING runs r WHERE r.key = l.run_key AND r.next_check_at IS NULL AND l.stream <= 2
            AND r.id = ANY(${kept.map(({ id }) => id)}::uuid[]) RETURNING r.id, length(l.data) AS bytes)
          SELECT id, sum(bytes)::float8 AS bytes FROM dropped GROUP BY 1`.execute(database.db)
        for (const { id, bytes: dropped } of rows) {
          const domainId = kept.find((run) => run.id === id)?.spec.domain_id ?? null
          if (domainId !== null) bytes.used(domainId, -dropped)
        }
      } catch (error) {
        logger.debug({ err: error }, 'failed to remove output that results repeat; it stays with its run')
      }
    },

    async close(): Promise<void> {
      await logs.close()
    },
  }
}

async function writeParts(database: Database, parts: readonly ResultPart[]): Promise<void> {
  const rows = parts.map(({ digest, offset, data }) => sql`(${digest}, ${offset}::bigint, ${Buffer.from(data)}::bytea)`)
  await sql`INSERT INTO staged_results (digest, byte_offset, data) VALUES ${sql.join(rows)}
    ON CONFLICT ON CONSTRAINT staged_results_pkey DO NOTHING`.execute(database.db)
}

/** Returns what each run has stored now, in bytes. */
async function writeLogs(database: Database, parts: readonly StoredPart[]): Promise<Map<number, number>> {
  const { rows } = await sql<{
    run_key: number
    bytes: number
  }>`WITH written AS (INSERT INTO run_logs (run_key, stream, byte_offset, data, truncated)
    SELECT p.run_key, p.stream, p.byte_offset, p.data, p.truncated
    FROM unnest(${parts.map((part) => part.runKey)}::bigint[], ${parts.map((part) => part.stream)}::smallint[],
        ${parts.map((part) => part.offset)}::bigint[], ${parts.map((part) => Buffer.from(part.data))}::bytea[],
        ${parts.map((part) => part.truncated)}::boolean[]) AS p (run_key, stream, byte_offset, data, truncated)
    JOIN runs r ON r.key = p.run_key
    ORDER BY p.run_key, p.stream, p.byte_offset
    ON CONFLICT ON CONSTRAINT run_logs_pkey DO NOTHING RETURNING run_key, length(data) AS bytes)
    SELECT run_key, sum(bytes)::float8 AS bytes FROM written GROUP BY 1`.execute(database.db)
  return new Map(rows.map((row) => [row.run_key, row.bytes]))
}
