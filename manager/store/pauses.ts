/** SQL of the pauses of tasks, and of the user who grants their channels and commands. */
import { recordManaged } from '#api/identity/index.ts'
import type { Actor } from '#api/identity/index.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { pauseTask, releaseTask } from '#queues/index.ts'
import type { TaskFields } from '../model/task-fields.ts'
import { recordIn } from './refusals.ts'

type ChannelFields = Pick<TaskFields, 'trigger' | 'publish_result' | 'grants' | 'answers'>

/** True: the task is paused, and the reason is with it. False: it has another grantor by now. */
export async function pauseFor(
  database: Database,
  { taskKey, grantorKey, reason }: { taskKey: number; grantorKey: number | null; reason: string },
): Promise<boolean> {
  return await database.transaction(async (tx) => {
    if (!(await pauseTask(tx, taskKey, grantorKey))) return false
    await recordIn(tx, [{ taskKey, source: 'right', reason, count: 1, needsAction: true }])
    return true
  })
}

export type PausedTask = ChannelFields & { key: number; domainId: string | null; grantorKey: number | null }

const PAUSED_COLUMNS = sql`key, domain_id AS "domainId", user_key AS "grantorKey", trigger, publish_result, grants, answers`

/** Lists the paused tasks in the order of their keys. */
export async function listPaused(db: Queryable, afterKey: number, limit: number): Promise<PausedTask[]> {
  const { rows } = await sql<PausedTask>`SELECT ${PAUSED_COLUMNS} FROM tasks
    WHERE paused_at IS NOT NULL AND key > ${afterKey} ORDER BY key LIMIT ${limit}`.execute(db)
  return rows
}

/** Tasks that use channels and whose grantor was deleted, and that are not paused yet. */
export async function listWithoutGrantor(db: Queryable, limit: number): Promise<number[]> {
  const { rows } = await sql<{ key: number }>`SELECT key FROM tasks
    WHERE user_key IS NULL AND paused_at IS NULL
      AND (trigger IS NOT NULL OR publish_result IS NOT NULL OR grants::text <> '[]' OR answers IS NOT NULL)
    ORDER BY key LIMIT ${limit}`.execute(db)
  return rows.map(({ key }) => key)
}

/** Triggers without a rule: their channel was deleted, and no refusal says so yet. */
export async function listWithoutChannel(
  db: Queryable,
  limit: number,
): Promise<{ taskKey: number; channelId: string }[]> {
  const { rows } = await sql<{ taskKey: number; channelId: string }>`
    SELECT t.key AS "taskKey", t.trigger ->> 'channel_id' AS "channelId" FROM tasks t
     WHERE t.trigger IS NOT NULL AND NOT EXISTS (SELECT FROM task_triggers g WHERE g.task_key = t.key)
       AND NOT EXISTS (SELECT FROM task_errors e WHERE e.task_key = t.key AND e.source = 'message')
     ORDER BY t.key LIMIT ${limit}`.execute(db)
  return rows
}

/** The grants of a task as they are now, and who has granted them; undefined: it was deleted. */
export async function findGrants(
  db: Queryable,
  taskKey: number,
): Promise<{ userKey: number | null; grants: TaskFields['grants'] } | undefined> {
  const { rows } = await sql<{ userKey: number | null; grants: TaskFields['grants'] }>`
    SELECT user_key AS "userKey", grants FROM tasks WHERE key = ${taskKey}`.execute(db)
  return rows[0]
}

/** Continues a paused task whose grantor has the rights again. No effect if it has another grantor or is not paused. */
export async function resumeTask(database: Database, taskKey: number, grantorKey: number): Promise<boolean> {
  return await database.transaction(async (tx) => {
    const change = { type: 'task', change: 'resume' } as const
    const { rows } = await sql`WITH changed AS (UPDATE tasks SET paused_at = NULL
        WHERE key = ${taskKey} AND paused_at IS NOT NULL AND user_key = ${grantorKey} RETURNING key, id, name, domain_key),
      recorded AS (${recordManaged('system', change)})
      SELECT key FROM changed`.execute(tx)
    if (rows.length === 0) return false
    await releaseTask(tx, taskKey, grantorKey)
    return true
  })
}

/** Makes the user the grantor, and ends a pause. False if the channel fields are not those whose rights were checked. */
export async function takeOverTask(
  database: Database,
  {
    taskKey,
    grantorKey,
    checked,
    actor,
  }: { taskKey: number; grantorKey: number; checked: ChannelFields; actor: Actor },
): Promise<boolean> {
  return await database.transaction(async (tx) => {
    const change = { type: 'task', change: 'take_over' } as const
    const { rows } =
      await sql`WITH changed AS (UPDATE tasks t SET user_key = ${grantorKey}, paused_at = NULL, updated_at = now()
        WHERE t.key = ${taskKey} AND ${areStill(checked)} RETURNING key, id, name, domain_key),
      recorded AS (${recordManaged(actor, change)})
      SELECT key FROM changed`.execute(tx)
    if (rows.length === 0) return false
    await releaseTask(tx, taskKey, grantorKey)
    return true
  })
}

/** Condition on `tasks t`: nobody has changed what a check of rights was about. */
export function areStill({ trigger, publish_result: target, grants, answers }: ChannelFields): Sql<boolean> {
  const given = (value: unknown) => (value === null ? null : JSON.stringify(value))
  return sql<boolean>`(t.trigger::jsonb IS NOT DISTINCT FROM ${given(trigger)}::jsonb
    AND t.publish_result::jsonb IS NOT DISTINCT FROM ${given(target)}::jsonb AND t.grants::jsonb = ${given(grants)}::jsonb
    AND t.answers::jsonb IS NOT DISTINCT FROM ${given(answers)}::jsonb)`
}
