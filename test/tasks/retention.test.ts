// task-manager.md section 1: runs are listed for as long as they are kept
import { afterAll, expect, test } from 'vitest'
import { deleteRuns } from '#manager/store/retention.ts'
import { startSite } from './support.ts'

const { db, client, close } = await startSite()
afterAll(close)

const HOUR_MS = 3_600_000

test('runs that ended long ago are removed, except the newest start of a task and active ones', async () => {
  const task = await client.task('add', { inputs: [1, 2] })
  const group = await client.task('add', { inputs: [1, 2], broadcast: true })
  const long = await client.task('endless', { timeout: '60s' })
  for (const id of [task, group, long]) await client.post(`/tasks/${id}/start`)
  await client.ended(task)
  await client.ended(group)
  await Promise.all([1, 2, 3].map(() => client.post(`/tasks/${task}/invoke`)))
  await client.post(`/tasks/${task}/start`)
  const last = await client.ended(task)
  await db.database.pool.query(`UPDATE runs SET created_at = now() - interval '2 hours',
    finished_at = CASE WHEN finished_at IS NOT NULL THEN now() - interval '2 hours' END`)
  const fresh = await client.post(`/tasks/${task}/invoke`)

  expect(await deleteRuns(db.database, HOUR_MS)).toBe(4)
  const { body } = await client.get(`/tasks/${task}/runs`)
  const kept = (body['runs'] as { id: string }[]).map(({ id }) => id)
  expect(kept).toEqual([fresh.body['run_id'], last['run_id']])
  expect(await client.results(task)).toMatchObject({ state: 3, results: [3] })
  expect((await client.results(group))['results']).toHaveLength(1)
  expect((await client.get(`/tasks/${long}/runs`)).body['total']).toBe(1)
  expect(await deleteRuns(db.database, HOUR_MS)).toBe(0)
  await client.post(`/tasks/${long}/stop`)
})
