/** What runs of deleted tasks have stored is free again: see the quota `run_bytes` (manager/writer/counted-quota.ts). */
import { releaseKept } from '#api/identity/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { RESULT_BYTES } from './runs.ts'

/** Parts of the statement that deletes tasks. `tasks` is a part with their keys. */
export function releaseBytesOf(tasks: 'changed' | 'changed_tasks'): Sql {
  return sql`freed AS (SELECT r.domain_key, (coalesce(r.finished_at, now()) AT TIME ZONE 'UTC')::date AS day,
      coalesce(${RESULT_BYTES}, 0) + (SELECT coalesce(sum(length(l.data)), 0) FROM run_logs l WHERE l.run_key = r.key) AS bytes
      FROM runs r JOIN ${sql.raw(tasks)} t ON t.key = r.task_key),
    released AS (${releaseKept('freed')})`
}
