/**
 * A task is paused while the user who granted its channels lacks a right on them (contract decision 88). Its messages and publications
 * wait. The platform and the managers pause it when it uses a channel; a manager ends the pause.
 */
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { releaseCommandsOf } from './command-runs.ts'
import { clearRefusals } from './task-errors.ts'

/** The delay of what a paused task has waiting. The end of the pause does not wait for it. */
export const HELD_SECONDS = 600

/** True: the task is paused. False: by now it has another grantor or was deleted, so the refusal says nothing about it. */
export async function pauseTask(db: Queryable, taskKey: number, grantorKey: number | null): Promise<boolean> {
  const { rows } = await sql`UPDATE tasks SET paused_at = coalesce(paused_at, now())
    WHERE key = ${taskKey} AND user_key IS NOT DISTINCT FROM ${grantorKey} RETURNING key`.execute(db)
  return rows.length === 1
}

/** Makes what waits due, after the row of the task has changed in the same transaction. `grantorKey` publishes from now on. */
export async function releaseTask(tx: Transaction, taskKey: number, grantorKey: number): Promise<void> {
  await clearRefusals('right', [taskKey]).execute(tx)
  // What waits for the end of its debounce keeps waiting.
  await sql`UPDATE task_messages m SET due_at = now() WHERE m.task_key = ${taskKey} AND m.due_at > now() AND m.lane IS NULL AND m.refused_at IS NULL
    AND NOT EXISTS (SELECT FROM task_triggers g
      WHERE g.task_key = m.task_key AND m.due_at = m.created_at + make_interval(secs => g.debounce_ms / 1000.0))`.execute(
    tx,
  )
  await sql`UPDATE task_publications SET due_at = now(), user_key = ${grantorKey}
    WHERE task_key = ${taskKey} AND refused_at IS NULL`.execute(tx)
  await releaseCommandsOf(tx, taskKey)
  await sql`UPDATE held_publications SET user_key = ${grantorKey} WHERE task_key = ${taskKey} AND user_key <> ${grantorKey}`.execute(
    tx,
  )
}

/**
 * Gives a publication to the grantor of its task, if it is another one by now, who has granted the task this channel too. False: it
 * is left as it is.
 */
export async function adoptPublication(db: Queryable, key: number): Promise<boolean> {
  const { rows } = await sql`UPDATE task_publications p SET user_key = t.user_key FROM tasks t
    WHERE p.key = ${key} AND t.key = p.task_key AND t.user_key <> p.user_key
      AND (t.publish_result ->> 'channel_id' = p.channel_id::text
        OR t.grants::jsonb @> jsonb_build_array(jsonb_build_object('kind', 'publish', 'channel_id', p.channel_id::text)))
    RETURNING p.key`.execute(db)
  return rows.length === 1
}
