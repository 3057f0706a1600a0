// Cursors of the lists of the task manager: a page goes on exactly after the last row of the page before.
import { randomUUID } from 'node:crypto'
import { afterAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { startSite } from './support.ts'

const { db, client, close } = await startSite()
afterAll(close)

type Row = Record<string, unknown>
type List = {
  path: string
  array: string
  field?: string
  add: () => Promise<string>
  remove?: (id: string) => unknown
}

async function pageOf(path: string, query: string): Promise<Record<string, unknown>> {
  const { status, body } = await client.get(`${path}${path.includes('?') ? '&' : '?'}${query}`)
  expect(status, JSON.stringify(body)).toBe(200)
  return body
}

async function walk({ path, array, field = 'id' }: List, limit: number, between: (seen: string[]) => unknown) {
  const seen: string[] = []
  let next: string | undefined
  do {
    const page = await pageOf(path, `limit=${limit}${next === undefined ? '' : `&cursor=${next}`}`)
    seen.push(...(page[array] as Row[]).map((row) => String(row[field])))
    next = page['next'] as string | undefined
    await between(seen)
  } while (next !== undefined)
  return seen
}

const add = await client.task('add')
const runs = {
  add: async () => {
    const { status, body } = await client.post(`/tasks/${add}/invoke`, { inputs: [1, 2] })
    expect(status).toBe(200)
    return String(body['run_id'])
  },
  remove: (id: string) => sql`DELETE FROM runs WHERE id = ${id}`.execute(db.database.db),
}
const task = async () => String((await client.post('/tasks', { name: 'same' })).body['id'])
const tasks = { array: 'tasks', add: task, remove: (id: string) => client.delete(`/tasks/${id}`) }
const workflows = {
  add: async () => String((await client.post('/workflows', { name: 'f', tasks: [{ name: 'a' }] })).body['id']),
  remove: (id: string) => client.delete(`/workflows/${id}`),
}
const workers = {
  add: async () => {
    const id = randomUUID()
    await sql`INSERT INTO workers (id, name, secret_hash, boot_id, version, labels, os, arch, cpu_cores, memory_bytes, slots, backlog, runtimes,
        session_epoch, lease_until, last_alive_at, alive_history)
      VALUES (${id}, 'w', '', '', '', '{}', '', '', 1, 1, 1, 1, '{}', 1, now(), now(), '{}')`.execute(db.database.db)
    return id
  },
  remove: (id: string) => sql`DELETE FROM workers WHERE id = ${id}`.execute(db.database.db),
}

test.each<[string, List]>([
  ['tasks by name', { path: '/tasks?order=name', ...tasks }],
  ['tasks, the newest first', { path: '/tasks?order=created_at&dir=desc', ...tasks }],
  ['tasks that changed last', { path: '/tasks?order=updated_at', ...tasks }],
  ['runs of a task', { path: `/tasks/${add}/runs`, array: 'runs', ...runs }],
  ['runs of all tasks', { path: '/runs', array: 'runs', ...runs }],
  ['metrics of a task', { path: `/tasks/${add}/metrics`, array: 'metrics', field: 'run_id', ...runs }],
  ['workflows', { path: '/workflows', array: 'workflows', ...workflows }],
  ['jobs', { path: '/jobs', array: 'jobs', field: 'job_id', ...workflows }],
  ['workers', { path: '/workers', array: 'workers', ...workers }],
  ['proplets', { path: '/proplets', array: 'proplets', ...workers }],
  [
    'modules',
    {
      path: '/modules',
      array: 'modules',
      field: 'image_url',
      add: async () => {
        const url = randomUUID()
        await sql`INSERT INTO module_uses (digest, reference, image_url, size_bytes, signed)
          VALUES (${`sha256:${'0'.repeat(64)}`}, ${url}, ${url}, 1, false)`.execute(db.database.db)
        return url
      },
      remove: (url: string) => sql`DELETE FROM module_uses WHERE image_url = ${url}`.execute(db.database.db),
    },
  ],
])('%s are each returned once while others are added and removed', async (_name, list) => {
  const ids: string[] = []
  for (let count = 0; count < 6; count += 1) ids.push(await list.add())
  const removed = new Set<string>()
  const seen = await walk(list, 2, async (before) => {
    if (before.length > 8) return
    const victims = [before.length === 2 ? before.at(-1) : undefined, ids.find((id) => !before.includes(id))]
    for (const id of victims) {
      if (id === undefined || removed.size >= 3 || removed.has(id) || !ids.includes(id)) continue
      await list.remove?.(id)
      if (!before.includes(id)) removed.add(id)
    }
    await list.add()
  })
  expect(new Set(seen).size).toBe(seen.length)
  for (const id of ids) expect(seen.includes(id), id).toBe(!removed.has(id))
  const whole = (await pageOf(list.path, 'limit=100'))[list.array] as Row[]
  expect(await walk(list, 3, () => undefined)).toEqual(whole.map((row) => String(row[list.field ?? 'id'])))
  const { next } = await pageOf(list.path, 'limit=1')
  const separator = list.path.includes('?') ? '&' : '?'
  for (const more of [`cursor=${String(next)}&offset=1`, 'cursor=here'])
    expect((await client.get(`${list.path}${separator}${more}`)).status, more).toBe(400)
})
