/**
 * What comes out of a run beside its small result: log chunks, best effort and bounded, and parts of large results, staged
 * in the database by digest before the result that names them is recorded.
 */
import { createHash, type Hash } from 'node:crypto'
import { createBatcher, type Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import type { RunIdentity } from '../dispatch/translate.ts'
import type { WorkerSession } from '../dispatch/worker-session.ts'
import { heldRun } from './end-runs.ts'
import { MAX_CHUNK_BYTES, MAX_OUTPUT_BYTES, MAX_STAGED_RESULT_BYTES } from './limits.ts'
import type { RunEnding } from './spec.ts'

export type ResultPart = { digest: string; offset: number; data: Uint8Array }
export type LogPart = { stream: number; offset: number; data: Uint8Array; truncated: boolean }

/** Log chunks that wait to be written; beyond it they are dropped, because results matter more. */
const MAX_QUEUED_LOGS = 2_000
const MAX_QUEUED_LOG_BYTES = 16 * 1024 * 1024

type Staging = { digest: string; hash: Hash; sizeBytes: number }
type SessionStaging = { runs: Map<string, Staging>; writes: Promise<void>; failure: unknown }

export type RunOutput = ReturnType<typeof createRunOutput>

export function createRunOutput({ database, logger }: { database: Database; logger: Logger }) {
  const stagings = new WeakMap<WorkerSession, SessionStaging>()
  let droppedLogs = 0
  const logs = createBatcher<LogPart & { runKey: number }, void>({
    name: 'the log of runs',
    maxItems: 500,
    maxBytes: 4 * 1024 * 1024,
    maxQueuedItems: MAX_QUEUED_LOGS,
    maxQueuedBytes: MAX_QUEUED_LOG_BYTES,
    sizeOf: (part) => part.data.byteLength,
    write: async (parts) => {
      await writeLogs(database, parts)
      return parts.map(() => undefined)
    },
  })

  function stagingOf(session: WorkerSession): SessionStaging {
    let staging = stagings.get(session)
    if (staging === undefined) {
      staging = { runs: new Map(), writes: Promise.resolve(), failure: undefined }
      stagings.set(session, staging)
    }
    return staging
  }

  return {
    get droppedLogs() {
      return droppedLogs
    },

    /** Parts come in order and without gaps; offset 0 begins anew. Throws `malformed`, `too_large`. */
    stage(session: WorkerSession, run: RunIdentity, part: ResultPart): void {
      if (heldRun(session, run) === undefined) return
      const staging = stagingOf(session)
      let result = staging.runs.get(run.id)
      if (part.offset === 0) {
        result = { digest: part.digest, hash: createHash('sha256'), sizeBytes: 0 }
        staging.runs.set(run.id, result)
      }
      if (result === undefined || result.digest !== part.digest || result.sizeBytes !== part.offset) {
        throw new ServiceError('malformed', 'parts of a result must come in order and without gaps')
      }
      if (part.data.byteLength > MAX_CHUNK_BYTES || part.offset + part.data.byteLength > MAX_STAGED_RESULT_BYTES) {
        throw new ServiceError(
          'too_large',
          `a result may have ${MAX_STAGED_RESULT_BYTES} bytes in parts of ${MAX_CHUNK_BYTES}`,
        )
      }
      result.hash.update(part.data)
      result.sizeBytes += part.data.byteLength
      staging.writes = staging.writes
        .then(() => writePart(database, part))
        .catch((error: unknown) => {
          staging.failure ??= error
        })
    },

    /** Resolves when every part that came is in the database. */
    async settled(session: WorkerSession): Promise<void> {
      const staging = stagings.get(session)
      if (staging === undefined) return
      await staging.writes
      if (staging.failure !== undefined) throw staging.failure as Error
    },

    /** The ending as it is, when its staged result is complete. Throws `malformed` else. */
    checkStaged(session: WorkerSession, run: RunIdentity, ending: RunEnding): RunEnding {
      if (ending.staged === null || heldRun(session, run) === undefined) return ending
      const runs = stagings.get(session)?.runs
      const result = runs?.get(run.id)
      runs?.delete(run.id)
      const { digest, sizeBytes } = ending.staged
      if (result?.sizeBytes !== sizeBytes || `sha256:${result.hash.digest('hex')}` !== digest) {
        throw new ServiceError('malformed', 'a staged result is not complete or does not have its digest')
      }
      return ending
    },

    log(session: WorkerSession, identity: RunIdentity, part: LogPart): void {
      const run = heldRun(session, identity)
      if (
        run === undefined ||
        part.offset + part.data.byteLength > MAX_OUTPUT_BYTES ||
        part.stream < 1 ||
        part.stream > 2
      )
        return
      logs.submit({ ...part, runKey: run.key }).catch((error: unknown) => {
        droppedLogs += 1
        logger.debug({ err: error }, 'output of a run was dropped')
      })
    },

    async close(): Promise<void> {
      await logs.close()
    },
  }
}

async function writePart(database: Database, part: ResultPart): Promise<void> {
  await sql`INSERT INTO staged_results (digest, byte_offset, data) VALUES (${part.digest}, ${part.offset}, ${Buffer.from(part.data)})
    ON CONFLICT ON CONSTRAINT staged_results_pkey DO NOTHING`.execute(database.db)
}

async function writeLogs(database: Database, parts: readonly (LogPart & { runKey: number })[]): Promise<void> {
  await sql`INSERT INTO run_logs (run_key, stream, byte_offset, data, truncated)
    SELECT p.run_key, p.stream, p.byte_offset, p.data, p.truncated
    FROM unnest(${parts.map((part) => part.runKey)}::bigint[], ${parts.map((part) => part.stream)}::smallint[],
        ${parts.map((part) => part.offset)}::bigint[], ${parts.map((part) => Buffer.from(part.data))}::bytea[],
        ${parts.map((part) => part.truncated)}::boolean[]) AS p (run_key, stream, byte_offset, data, truncated)
    JOIN runs r ON r.key = p.run_key
    ORDER BY p.run_key, p.stream, p.byte_offset
    ON CONFLICT ON CONSTRAINT run_logs_pkey DO NOTHING`.execute(database.db)
}
