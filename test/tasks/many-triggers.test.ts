/** Ten thousand triggers on one channel: a message reaches all of them, and the trigger of another domain does not wait for them. */
import { expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { useWorld } from '../harness/world.ts'
import { startTestTenant } from './platform.ts'
import { until } from './support.ts'

const TRIGGERS = 10_000

const tenant = useWorld(startTestTenant)

/** As many tasks as this one, with its trigger: through the API they would take minutes. */
async function multiply(task: string, count: number): Promise<void> {
  const { db } = tenant.database
  const columnsOf = async (table: string) =>
    (
      await sql<{ name: string }>`SELECT column_name AS name FROM information_schema.columns
        WHERE table_schema = current_schema() AND table_name = ${table}
          AND is_identity = 'NO' AND column_name NOT IN ('id', 'task_key') ORDER BY ordinal_position`.execute(db)
    ).rows.map(({ name }) => sql.ref(name))
  const [ofTask, ofTrigger] = [sql.join(await columnsOf('tasks')), sql.join(await columnsOf('task_triggers'))]
  await sql`WITH added AS (INSERT INTO tasks (id, ${ofTask}) SELECT gen_random_uuid(), ${ofTask} FROM tasks, generate_series(1, ${count}) n
      WHERE id = ${task} RETURNING key)
    INSERT INTO task_triggers (task_key, ${ofTrigger}) SELECT added.key, ${ofTrigger} FROM added, task_triggers
      WHERE task_key = (SELECT key FROM tasks WHERE id = ${task})`.execute(db)
}

const runsOf = async (task: string) =>
  (await tenant.owner.call('GET', `/tasks/${task}/runs?limit=1`)).json<{ total: number }>().total

test('a message starts a run of each, and the trigger of another domain is served meanwhile', async () => {
  const { call } = tenant.owner
  const channel = await tenant.newChannel(call, tenant.domain)
  const flooded = await tenant.newTask(tenant.owner, tenant.domain, {
    inputs: [0],
    labels: { zone: 'nowhere' },
    trigger: { channel_id: channel },
  })
  await multiply(flooded, TRIGGERS - 1)
  const other = await tenant.newDomain(call)
  const quiet = await tenant.newChannel(call, other)
  const listener = await tenant.newTask(tenant.owner, other, { inputs: [0], trigger: { channel_id: quiet } })
  await tenant.publish(call, tenant.domain, channel, [{ n: 'a', v: 1 }])
  const started = async () =>
    (
      await sql<{
        runs: number
      }>`SELECT count(*)::int AS runs FROM runs WHERE domain_key = (SELECT key FROM domains WHERE id = ${tenant.domain})`.execute(
        tenant.database.db,
      )
    ).rows[0]?.runs ?? 0
  const startedBefore: number[] = []
  for (let message = 1; message <= 3; message++) {
    await tenant.publish(call, other, quiet, [{ n: 'a', v: message }])
    await until(
      'its run',
      () => runsOf(listener),
      (runs) => runs === message,
      60_000,
    )
    startedBefore.push(await started())
  }
  // The first of them did not wait for the runs of the other domain.
  expect(startedBefore[0]).toBeLessThan(TRIGGERS)
  await until('all runs', started, (runs) => runs === TRIGGERS, 120_000)
}, 240_000)
