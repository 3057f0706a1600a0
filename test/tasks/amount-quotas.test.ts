// Contract decision 98: the quotas of tasks, workflows, schedules and triggers of a domain.
import { expect, test } from 'vitest'
import { kindOf } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import { AmountQuotas } from '../../manager/store/amount-quotas.ts'
import { useWorld } from '../harness/world.ts'
import { startTestTenant } from './platform.ts'
import { keyedCounter } from './counter.ts'
import { clientOf, logger, until } from './support.ts'

const tenant = useWorld(startTestTenant)

type Name = 'tasks' | 'workflows' | 'schedules' | 'triggers' | 'state_keys' | 'state_bytes' | 'queued_bytes'
type Usage = { quotas: Record<Name, { limit: number | null; used: number }> }
const NOON = '0 12 * * *'
const AT_ONCE = 30
const ROUNDS = 10

const call = (...args: Parameters<typeof tenant.owner.call>) => tenant.owner.call(...args)
const newDomain = () => tenant.newDomain(tenant.owner.call)
const usageOf = async (domain: string) => (await call('GET', `/domains/${domain}/usage`)).json<Usage>().quotas
const usedOf = async (domain: string) => {
  const { tasks, workflows, schedules, triggers } = await usageOf(domain)
  return [tasks.used, workflows.used, schedules.used, triggers.used]
}

async function limit(domain: string, own: Partial<Record<Name, number>>): Promise<void> {
  const set = await tenant.api.admin('PUT', `/domains/${domain}/quotas`, { own })
  expect(set.status, set.text).toBe(200)
  await until(
    'the quotas are in force',
    () => usageOf(domain),
    (quotas) => Object.entries(own).every(([name, value]) => quotas[name as Name].limit === value),
  )
}

const newTask = async (domain: string, fields: Record<string, unknown> = {}) =>
  await call('POST', '/tasks', { name: 'add', domain_id: domain, ...fields })
const created = async (domain: string, fields: Record<string, unknown> = {}) => {
  const made = await newTask(domain, fields)
  expect(made.status, made.text).toBe(201)
  return made.json<{ id: string }>().id
}
const newWorkflow = async (domain: string, tasks: readonly Record<string, unknown>[]) =>
  await call('POST', '/workflows', { name: 'w', domain_id: domain, tasks })

/** 422 that names the limit. */
function expectRefusal({ status, text }: { status: number; text: string }, what: string, bound: number): void {
  expect(status, text).toBe(422)
  expect(JSON.parse(text)).toMatchObject({
    error: 'quota_exceeded',
    message: expect.stringContaining(`the quota of the domain is ${bound} ${what}; `) as string,
  })
}

test('every domain has these limits, and shows what it has of each', async () => {
  const domain = await newDomain()
  expect(await usageOf(domain)).toMatchObject({
    tasks: { limit: 100_000, used: 0 },
    workflows: { limit: 10_000, used: 0 },
    schedules: { limit: 20_000, used: 0 },
    triggers: { limit: 20_000, used: 0 },
    state_keys: { limit: 1_000_000, used: 0 },
    state_bytes: { limit: 4 * 1024 ** 3, used: 0 },
    queued_bytes: { limit: 20 * 1024 ** 3, used: 0 },
  })
  const channel = await tenant.newChannel(tenant.owner.call, domain)
  await created(domain)
  await created(domain, { schedule: NOON, trigger: { channel_id: channel } })
  expect((await newWorkflow(domain, [{ name: 'a' }, { name: 'b', schedule: NOON }])).status).toBe(201)
  expect(await usedOf(domain)).toEqual([4, 1, 2, 1])
})

test('a task beyond the limit is refused by its name; deleting one makes room, and another tenant has its own', async () => {
  const [domain, other] = [await newDomain(), await newDomain()]
  await limit(domain, { tasks: 2 })
  const first = await created(domain)
  await created(domain)
  expectRefusal(await newTask(domain), 'tasks', 2)
  expect((await newTask(domain)).json<{ message: string }>().message).toBe(
    'the quota of the domain is 2 tasks; 2 are used, 1 more were requested',
  )
  await created(other)
  expect((await call('DELETE', `/tasks/${first}`)).status).toBe(204)
  await created(domain)
  expectRefusal(await newTask(domain), 'tasks', 2)
  // Who may not create tasks there does not see the limit.
  const stranger = await tenant.api.newUser()
  expect((await stranger.call('POST', '/tasks', { name: 'add', domain_id: domain })).status).toBe(403)
  // An invalid task is refused as such.
  expect((await newTask(domain, { schedule: 'never' })).status).toBe(400)
  expect(await usedOf(domain)).toEqual([2, 0, 0, 0])
})

test('callers at the same time have no more room together than one after another', async () => {
  const domain = await newDomain()
  await limit(domain, { tasks: 10, schedules: 3 })
  const scheduled = await Promise.all(
    Array.from({ length: AT_ONCE }, async () => await newTask(domain, { schedule: NOON })),
  )
  expect(scheduled.filter(({ status }) => status === 201)).toHaveLength(3)
  const plain = await Promise.all(Array.from({ length: AT_ONCE }, async () => await newTask(domain)))
  expect(plain.filter(({ status }) => status === 201)).toHaveLength(7)
  expect(plain.every(({ status }) => status === 201 || status === 422)).toBe(true)
  expect(await usedOf(domain)).toEqual([10, 0, 3, 0])
})

test('callers that create and delete at the limit never exceed it, and are refused only while it is reached', async () => {
  const domain = await newDomain()
  await limit(domain, { tasks: 6 })
  const kept: string[] = []
  const createSome = async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const made = await newTask(domain)
      expect([201, 422]).toContain(made.status)
      if (made.status === 201) kept.push(made.json<{ id: string }>().id)
      const [tasks = 0] = await usedOf(domain)
      expect(tasks).toBeLessThanOrEqual(6)
      const removed = round % 2 === 0 ? kept.shift() : undefined
      if (removed !== undefined) expect((await call('DELETE', `/tasks/${removed}`)).status).toBe(204)
    }
  }
  await Promise.all(Array.from({ length: 5 }, createSome))
  for (let left = 6 - kept.length; left > 0; left--) await created(domain)
  expectRefusal(await newTask(domain), 'tasks', 6)
})

test('lowered below what is used nothing is deleted or stopped, and only the next creation is refused', async () => {
  const domain = await newDomain()
  const channel = await tenant.newChannel(tenant.owner.call, domain)
  const trigger = { channel_id: channel }
  const task = await created(domain, { schedule: NOON, trigger })
  await created(domain)
  expect((await newWorkflow(domain, [{ name: 'a' }])).status).toBe(201)
  await limit(domain, { tasks: 1, workflows: 0, schedules: 0, triggers: 0 })
  expectRefusal(await newTask(domain), 'tasks', 1)
  expectRefusal(await newWorkflow(domain, [{ name: 'b' }]), 'tasks', 1)
  expect(await usedOf(domain)).toEqual([3, 1, 1, 1])
  // What it has may be changed.
  const other = { schedule: '0 13 * * *', trigger: { ...trigger, subtopic: 'a' }, name: 'another name' }
  expect((await call('PUT', `/tasks/${task}`, other)).status).toBe(200)
  expect((await call('PUT', `/tasks/${task}`, { schedule: null, trigger: null })).status).toBe(200)
  expectRefusal(await call('PUT', `/tasks/${task}`, { schedule: NOON }), 'tasks with a schedule', 0)
})

test('a schedule or a trigger that a change gives to a task counts, and is refused whole', async () => {
  const domain = await newDomain()
  const channel = await tenant.newChannel(tenant.owner.call, domain)
  const trigger = { channel_id: channel }
  await limit(domain, { schedules: 1, triggers: 1 })
  const [first, second] = [await created(domain, { schedule: NOON }), await created(domain)]
  expectRefusal(
    await call('PUT', `/tasks/${second}`, { name: 'changed', schedule: NOON, trigger }),
    'tasks with a schedule',
    1,
  )
  expect((await call('GET', `/tasks/${second}`)).json()).toMatchObject({ name: 'add' })
  expect((await call('PUT', `/tasks/${second}`, { trigger })).status).toBe(200)
  expectRefusal(await call('PUT', `/tasks/${first}`, { trigger }), 'tasks with a trigger', 1)
  expectRefusal(await newTask(domain, { trigger }), 'tasks with a trigger', 1)
  expectRefusal(await newTask(domain, { schedule: NOON }), 'tasks with a schedule', 1)
  // Moved from one to the other.
  expect((await call('PUT', `/tasks/${first}`, { schedule: null })).status).toBe(200)
  expect((await call('PUT', `/tasks/${second}`, { schedule: NOON })).status).toBe(200)
  // Deleting it makes room for both.
  expect((await call('DELETE', `/tasks/${second}`)).status).toBe(204)
  await created(domain, { schedule: NOON, trigger })
  expect(await usedOf(domain)).toEqual([2, 0, 1, 1])
})

test('a workflow is created with all of its tasks, or not at all', async () => {
  const domain = await newDomain()
  await limit(domain, { tasks: 3, workflows: 2, schedules: 1 })
  expectRefusal(await newWorkflow(domain, [{ name: 'a' }, { name: 'b' }, { name: 'c' }, { name: 'd' }]), 'tasks', 3)
  const scheduled = [
    { name: 'a', schedule: NOON },
    { name: 'b', schedule: NOON },
  ]
  expectRefusal(await newWorkflow(domain, scheduled), 'tasks with a schedule', 1)
  expect(await usedOf(domain)).toEqual([0, 0, 0, 0])
  const made = await newWorkflow(domain, [{ name: 'a', schedule: NOON }])
  expect((await newWorkflow(domain, [{ name: 'a' }])).status).toBe(201)
  expectRefusal(await newWorkflow(domain, [{ name: 'a' }]), 'workflows', 2)
  // The older form of the same.
  const job = { name: 'job', domain_id: domain, tasks: [{ name: 'a' }] }
  expectRefusal(await call('POST', '/jobs', job), 'workflows', 2)
  expect(await usedOf(domain)).toEqual([2, 2, 1, 0])
  expect((await call('DELETE', `/workflows/${made.json<{ id: string }>().id}`)).status).toBe(204)
  expect((await newWorkflow(domain, [{ name: 'a', schedule: NOON }, { name: 'b' }])).status).toBe(201)
  expectRefusal(await newTask(domain), 'tasks', 3)
})

test('another task manager sees what was created and deleted here', async () => {
  const domain = await newDomain()
  const other = new AmountQuotas({ database: tenant.database, quotas: { ofDomainId: () => 2 }, logger })
  /** Room that is not used. */
  const isRefused = async () => {
    try {
      await other.ready(domain, { tasks: 1 })
      other.take(domain, { tasks: 1 })[Symbol.dispose]()
      return false
    } catch (error) {
      expect(kindOf(error)).toBe('quota_exceeded')
      return true
    }
  }
  const first = await created(domain)
  expect(await isRefused()).toBe(false)
  await created(domain)
  await until('it is full', isRefused, (isFull) => isFull)
  expect((await call('DELETE', `/tasks/${first}`)).status).toBe(204)
  await until('there is room', isRefused, (isFull) => !isFull)
})

test('a refused or failed creation takes no room', async () => {
  const domain = await newDomain()
  await limit(domain, { tasks: 1 })
  for (let attempt = 0; attempt < 3; attempt++) {
    expect((await newTask(domain, { name: 'a', trigger: { channel_id: domain } })).status).toBe(403)
    expect((await newWorkflow(domain, [{ name: 'a', metadata: { text: '\u0000' } }])).status).toBe(400)
  }
  await created(domain)
})

/** A task manager that creates tasks without modules; its callers come at the same time. */
function managerOf(bound: number) {
  const { database } = tenant
  const amounts = new AmountQuotas({ database, quotas: { ofDomainId: () => bound }, logger })
  return {
    amounts,
    /** How many of these were created. */
    async create(domain: string, count: number): Promise<number> {
      const outcomes = await Promise.allSettled(
        Array.from({ length: count }, () =>
          amounts.within(domain, { tasks: 1 }, async () => {
            await sql`INSERT INTO tasks (id, name, domain_id, domain_key, inputs, env, labels, priority, timeout_ms, memory_limit_bytes, backoff_ms, on_lost, metadata)
              SELECT gen_random_uuid(), 'a', id, key, '[]', '{}', '{}', 0, 1, 1, 1, 'fail', '{}' FROM domains WHERE id = ${domain}`.execute(
              database.db,
            )
          }),
        ),
      )
      for (const outcome of outcomes)
        if (outcome.status === 'rejected') expect(kindOf(outcome.reason)).toBe('quota_exceeded')
      return outcomes.filter(({ status }) => status === 'fulfilled').length
    },
  }
}

test('several managers at the same time exceed a limit by no more than the others create until their counts are read again', async () => {
  const domain = await newDomain()
  const bound = 20
  const managers = [managerOf(bound), managerOf(bound), managerOf(bound)]
  const tasksOf = async () => (await usedOf(domain))[0] ?? 0
  const first = await Promise.all(managers.map((manager) => manager.create(domain, 2 * bound)))
  const used = await tasksOf()
  expect(first.reduce((sum, count) => sum + count, 0)).toBe(used)
  // None of them exceeds it by itself, and together they reach it.
  expect(Math.max(...first)).toBeLessThanOrEqual(bound)
  expect(used).toBeGreaterThanOrEqual(bound)
  // What was created elsewhere is known with the next read, and every manager refuses.
  await until(
    'every manager is full',
    async () => await Promise.all(managers.map((manager) => manager.create(domain, 1))),
    (created) => created.every((count) => count === 0),
  )
  const full = await tasksOf()
  expect(await Promise.all(managers.map((manager) => manager.create(domain, bound)))).toEqual([0, 0, 0])
  expect(await tasksOf()).toBe(full)
})

test('managers whose counts were read are exact one after another, and a limit below what is used refuses at each of them', async () => {
  const domain = await newDomain()
  const managers = [managerOf(10), managerOf(10)] as const
  expect(await managers[0].create(domain, 10)).toBe(10)
  // Its count is read for the first time.
  expect(await managers[1].create(domain, 5)).toBe(0)
  const lowered = managerOf(3)
  expect(await lowered.create(domain, 1)).toBe(0)
  expect((await usedOf(domain))[0]).toBe(10)
})

test('runs and users write state up to the limits of the domain, and what does not grow goes on', async () => {
  const domain = await newDomain()
  const { accessToken } = tenant.owner
  const id = await created(domain)
  const uploaded = await clientOf(tenant.api.app).upload(id, Buffer.from(await keyedCounter()), 'file', {
    authorization: `Bearer ${accessToken}`,
  })
  expect(uploaded.status).toBe(200)
  expect((await call('PUT', `/tasks/${id}`, { function: 'count' })).status).toBe(200)
  const count = async (key: number) =>
    (await call('POST', `/tasks/${id}/invoke`, { inputs: [key] })).json<{
      results: number[] | null
      reason: string
      error: string
    }>()
  const put = (key: string, value: string) => call('PUT', `/tasks/${id}/state/${key}`, { value })
  await limit(domain, { state_keys: 2 })
  expect((await count(1)).results).toEqual([1])
  expect((await put('user', 'abc')).status).toBe(200)
  expect(await usageOf(domain)).toMatchObject({ state_keys: { limit: 2, used: 2 }, state_bytes: { used: 15 } })
  expect(await count(2)).toMatchObject({ results: null, reason: 'guest_error' })
  expect((await count(2)).error).toContain('the quota of the domain is 2 keys of state')
  expectRefusal(await put('more', 'x'), 'keys of state', 2)
  expect((await count(1)).results).toEqual([2])
  expect((await put('user', 'abcd')).status).toBe(200)

  await limit(domain, { state_keys: 10, state_bytes: 20 })
  expect((await count(1)).results).toEqual([3])
  expect((await count(2)).error).toContain('the quota of the domain is 20 bytes of state')
  expectRefusal(await put('user', 'abcdefghi'), 'bytes of state', 20)
  expect((await put('user', 'a')).status).toBe(200)
  expect((await call('DELETE', `/tasks/${id}/state/user`)).status).toBe(204)
  expect((await count(2)).results).toEqual([1])
  // Of a deleted task nothing counts.
  expect((await call('DELETE', `/tasks/${id}?force=true`)).status).toBe(204)
  expect(await usageOf(domain)).toMatchObject({ state_keys: { used: 0 }, state_bytes: { used: 0 } })
})

test('while the state of a domain is counted, runs of another one end', async () => {
  const [domain, other] = [await newDomain(), await newDomain()]
  const invoke = async (task: string, inputs: number[]) =>
    (await call('POST', `/tasks/${task}/invoke`, { inputs })).json<{ results: number[] | null }>()
  const [counting, adding] = [await created(domain), await tenant.newTask(tenant.owner, other, {})]
  const uploaded = await clientOf(tenant.api.app).upload(counting, Buffer.from(await keyedCounter()), 'file', {
    authorization: `Bearer ${tenant.owner.accessToken}`,
  })
  expect(uploaded.status).toBe(200)
  expect((await call('PUT', `/tasks/${counting}`, { function: 'count' })).status).toBe(200)
  expect((await invoke(adding, [1, 2])).results).toEqual([3])
  let isCounted = false
  const { counted } = await tenant.database.transaction(async (tx) => {
    await sql`LOCK TABLE task_state_sizes IN ACCESS EXCLUSIVE MODE`.execute(tx)
    const ending = invoke(counting, [1]).finally(() => (isCounted = true))
    await until(
      'a count that waits',
      async () =>
        await sql<{ pid: number }>`SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'
          AND query LIKE '%task_state_sizes%'`.execute(tenant.database.db),
      ({ rows }) => rows.length > 0,
    )
    for (let run = 0; run < 3; run++) expect((await invoke(adding, [run, 2])).results).toEqual([run + 2])
    expect(isCounted).toBe(false)
    return { counted: ending }
  })
  expect((await counted).results).toEqual([1])
})

test('values that are written at the same time have no more room together than one after another', async () => {
  const domain = await newDomain()
  const tasks = await Promise.all(Array.from({ length: AT_ONCE }, () => created(domain)))
  await limit(domain, { state_keys: 5 })
  for (let round = 0; round < ROUNDS; round++) {
    const put = (id: string) => call('PUT', `/tasks/${id}/state/k`, { value: 'x' })
    const answers = await Promise.all(tasks.map(put))
    const refused = answers.filter(({ status }) => status !== 200)
    for (const one of refused) expectRefusal(one, 'keys of state', 5)
    // One that commits can count twice for a moment, never less than once.
    expect(refused.length).toBeGreaterThanOrEqual(AT_ONCE - 5)
    expect(refused.length).toBeLessThan(AT_ONCE)
    expect(await usageOf(domain)).toMatchObject({ state_keys: { used: AT_ONCE - refused.length } })
    // What does not grow needs no room.
    const [written] = tasks.filter((_, index) => answers[index]?.status === 200)
    expect((await put(written ?? '')).status).toBe(200)
    for (const [index, id] of tasks.entries())
      if (answers[index]?.status === 200) expect((await call('DELETE', `/tasks/${id}/state/k`)).status).toBe(204)
  }
})
