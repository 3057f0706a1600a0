/** Idempotency-Key of a start (contract decision 54): the same key starts once; with another body it is refused. */
import { ServiceError } from '#core/errors/index.ts'
import type { RunBatch } from './batch.ts'
import type { StartRequest } from '../model/start.ts'

type KeyedTask = { key: number }

type KeyRow = { task_key: number; user_key: number; idempotency_key: string; body_digest: string; run_id: string }

const READ_START_KEYS = `
  SELECT k.task_key, k.user_key, k.idempotency_key, k.body_digest, k.run_id FROM run_start_keys k
  JOIN unnest($1::bigint[], $2::bigint[], $3::text[]) AS c (task_key, user_key, idempotency_key)
    USING (task_key, user_key, idempotency_key)`

const WRITE_START_KEYS = `
  INSERT INTO run_start_keys (task_key, user_key, idempotency_key, body_digest, run_id)
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::uuid[])`

/** The earlier keys of these starts; `remember` collects the new ones and `write` stores them at the end. */
export async function findStartKeys(
  batch: RunBatch,
  requests: readonly StartRequest[],
  tasks: ReadonlyMap<string, KeyedTask>,
) {
  const asked = requests.flatMap(({ taskId, idempotency }) => {
    const task = tasks.get(taskId)
    return task === undefined || idempotency === undefined ? [] : [{ task, idempotency }]
  })
  const rows =
    asked.length === 0
      ? []
      : await batch.rows<KeyRow>('read-start-keys', READ_START_KEYS, [
          asked.map(({ task }) => task.key),
          asked.map(({ idempotency }) => idempotency.userKey),
          asked.map(({ idempotency }) => idempotency.key),
        ])
  const name = (taskKey: number, userKey: number, key: string) => `${taskKey} ${userKey} ${key}`
  const known = new Map(rows.map((row) => [name(row.task_key, row.user_key, row.idempotency_key), row]))
  const fresh: KeyRow[] = []
  return {
    runOf({ idempotency }: StartRequest, task: KeyedTask): string | undefined {
      if (idempotency === undefined) return undefined
      const row = known.get(name(task.key, idempotency.userKey, idempotency.key))
      if (row !== undefined && row.body_digest !== idempotency.bodyDigest) {
        throw new ServiceError('unprocessable', 'this Idempotency-Key was used with another body')
      }
      return row?.run_id
    },
    remember({ idempotency, runId }: StartRequest, task: KeyedTask): void {
      if (idempotency === undefined) return
      const { userKey, key, bodyDigest } = idempotency
      const row = {
        task_key: task.key,
        user_key: userKey,
        idempotency_key: key,
        body_digest: bodyDigest,
        run_id: runId,
      }
      known.set(name(task.key, userKey, key), row)
      fresh.push(row)
    },
    async write(): Promise<void> {
      if (fresh.length === 0) return
      await batch.rows('write-start-keys', WRITE_START_KEYS, [
        fresh.map((row) => row.task_key),
        fresh.map((row) => row.user_key),
        fresh.map((row) => row.idempotency_key),
        fresh.map((row) => row.body_digest),
        fresh.map((row) => row.run_id),
      ])
    },
  }
}
