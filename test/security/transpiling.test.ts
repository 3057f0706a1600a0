/** Transpiling components is fair (task-manager.md section 4): bounded for each domain, and /placement shows where a run stands. */
import { afterAll, expect, test } from 'vitest'
import { clientOf, startDatabase, startTestManager, startTestWorker, until } from '../tasks/support.ts'
import { componentFromText } from '../worker/pool.ts'

const db = await startDatabase()
const manager = await startTestManager(db.database)
const worker = await startTestWorker(manager, { slots: 24 })
const client = clientOf(manager.app)
afterAll(async () => {
  await worker.close()
  await manager.close()
  await db.close()
})

/** More than one that is transpiled and sixteen that wait. */
const COMPONENTS = 20
const NAME = 'copy'

/** The same component under another digest: with a custom section that holds the number. */
function copyOf(bytes: Buffer, number: number): Buffer {
  const content = Buffer.concat([Buffer.from([NAME.length]), Buffer.from(NAME), Buffer.from([number])])
  return Buffer.concat([bytes, Buffer.from([0, content.length]), content])
}

const WAITING = 'its component is waiting for transpilation'

test('components above the limit of a domain return to the queue and run later; placement shows the slots', async () => {
  const component = Buffer.from(
    await componentFromText(`(component
      (core module $m (func (export "f") (result i32) (i32.const 7)))
      (core instance $i (instantiate $m)) (type $t (func (result u32)))
      (func $f (type $t) (canon lift (core func $i "f"))) (export "run" (func $f)))`),
  )
  const ids: string[] = []
  for (let number = 0; number < COMPONENTS; number++) {
    const { body } = await client.post('/tasks', { name: `agent ${number}` })
    const id = String(body['id'])
    ids.push(id)
    const uploaded = await client.upload(id, copyOf(component, number))
    expect(uploaded.status, JSON.stringify(uploaded.body)).toBe(200)
  }
  for (const id of ids) expect((await client.post(`/tasks/${id}/start`)).status).toBe(200)
  const seen = await until(
    'a place in the queue',
    async () => (await Promise.all(ids.map((id) => client.get(`/tasks/${id}/placement`)))).map(({ body }) => body),
    // A run can be placed while its answer is made.
    (placements) => placements.some(({ position, reason }) => Number(position) >= 1 && reason === WAITING),
    60_000,
  )
  const places = seen.flatMap(({ position }) => (position === undefined ? [] : [Number(position)]))
  expect(Math.max(...places)).toBeLessThanOrEqual(16)
  for (const id of ids) expect(await client.ended(id, 60_000)).toMatchObject({ state: 3, results: 7 })
})
