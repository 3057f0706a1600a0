// contract decision 76; docs/guides/quotas.md: the quota `queued_bytes`
import { expect, test } from 'vitest'
import { boundQueuedBytes, readQueuedBytes } from '#queues/index.ts'
import { sql } from '#core/sql.ts'
import type { Statement } from '#core/sql.ts'
import { createFullDomains } from '../../api/queued-bytes.ts'
import { startTestTenant } from './platform.ts'
import { logger, until } from './support.ts'
import { useWorld } from '../harness/world.ts'

const tenant = useWorld(startTestTenant)

const DEFAULT_BYTES = 20 * 1024 ** 3

type Usage = { quotas: { queued_bytes: { limit: number | null; used: number } } }
type Status = { matched: number; dropped: number; expired: number; behind_since?: string }

const newDomain = () => tenant.newDomain(tenant.owner.call)
const usedOf = async (domain: string) =>
  (await tenant.owner.call('GET', `/domains/${domain}/usage`)).json<Usage>().quotas.queued_bytes
const statusOf = async (task: string) =>
  (await tenant.owner.call('GET', `/tasks/${task}`)).json<{ trigger_status: Status }>().trigger_status
const lettersOf = async (task: string) =>
  (await tenant.owner.call('GET', `/tasks/${task}/dead-letters`)).json<{ total: number }>().total

async function setQuota(domain: string, bytes: number | null): Promise<void> {
  const set = await tenant.api.admin('PUT', `/domains/${domain}/quotas`, { own: { queued_bytes: bytes } })
  expect(set.status, set.text).toBe(200)
  await until(
    'the quota is in force',
    () => usedOf(domain),
    ({ limit }) => limit === (bytes ?? DEFAULT_BYTES),
  )
}

/** Without a module, each message becomes a dead letter. */
async function newTaskWithoutModule(domain: string, channel: string): Promise<string> {
  const fields = { name: 'no module', domain_id: domain, trigger: { channel_id: channel } }
  return (await tenant.owner.call('POST', '/tasks', fields)).json<{ id: string }>().id
}

const publish = (domain: string, channel: string, value: number) =>
  tenant.publish(tenant.owner.call, domain, channel, [{ n: 'a', v: value, u: 'x'.repeat(200) }])

const isBehind = ({ behind_since: since }: Status) => since !== undefined

test('messages of a full domain wait in their channel, and start their runs when there is room', async () => {
  const [domain, other] = [await newDomain(), await newDomain()]
  const channel = await tenant.newChannel(tenant.owner.call, domain)
  const refusing = await newTaskWithoutModule(domain, channel)
  for (let value = 0; value < 10; value++) await publish(domain, channel, value)
  await until(
    'dead letters',
    () => lettersOf(refusing),
    (total) => total === 10,
  )
  const { used } = await usedOf(domain)
  expect(used).toBeGreaterThan(10 * 200)
  expect((await usedOf(other)).used, 'nothing of another domain').toBe(0)

  await setQuota(domain, used)
  // Its own channel, so that its runs are its own.
  const free = await tenant.newChannel(tenant.owner.call, domain)
  const task = await tenant.newTask(tenant.owner, domain, { inputs: [0], trigger: { channel_id: free } })
  let sent = 0
  await until(
    'it is behind',
    async () => {
      await publish(domain, free, sent++)
      return await statusOf(task)
    },
    isBehind,
  )
  for (let more = 0; more < 20; more++) await publish(domain, free, sent++)
  // A neighbour is not delayed.
  const theirs = await tenant.newChannel(tenant.owner.call, other)
  const neighbour = await tenant.newTask(tenant.owner, other, { inputs: [0], trigger: { channel_id: theirs } })
  await publish(other, theirs, 1)
  const runsOf = async (one: string) =>
    (await tenant.owner.call('GET', `/tasks/${one}/runs?state=3`)).json<{ total: number }>().total
  await until(
    'a run of the neighbour',
    () => runsOf(neighbour),
    (total) => total === 1,
  )
  expect(await statusOf(task)).toMatchObject({ dropped: 0, expired: 0 })
  expect(await runsOf(task)).toBeLessThan(sent - 15)

  await tenant.owner.call('POST', `/tasks/${refusing}/dead-letters/discard`, { all: true })
  await until(
    'each has run',
    () => runsOf(task),
    (total) => total === sent,
  )
  await until(
    'it is with the others again',
    () => statusOf(task),
    (status) => !isBehind(status),
  )
  expect(await statusOf(task)).toMatchObject({ matched: sent, dropped: 0, expired: 0 })
})

test('a quota of zero lets no message into a queue, and a raised one all of them', async () => {
  const domain = await newDomain()
  const channel = await tenant.newChannel(tenant.owner.call, domain)
  await setQuota(domain, 0)
  const task = await tenant.newTask(tenant.owner, domain, { inputs: [0], trigger: { channel_id: channel } })
  let sent = 0
  await until(
    'it is behind',
    async () => {
      await publish(domain, channel, sent++)
      return await statusOf(task)
    },
    isBehind,
  )
  await setQuota(domain, null)
  const runs = async () =>
    (await tenant.owner.call('GET', `/tasks/${task}/runs?state=3`)).json<{ total: number }>().total
  await until('each has run', runs, (total) => total === sent)
  for (const bytes of [-1, 1.5, 'many', 2 ** 60])
    expect((await tenant.api.admin('PUT', `/domains/${domain}/quotas`, { own: { queued_bytes: bytes } })).status).toBe(
      400,
    )
  expect((await tenant.owner.call('PUT', `/domains/${domain}/quotas`, { own: { queued_bytes: 1 } })).status).toBe(403)
})

test('rows are summed up for domains alone that may have less than all domains have together', async () => {
  const statements: string[] = []
  const { db } = tenant.database
  const recording = {
    db: {
      query: (statement: Statement) => {
        statements.push(statement.text)
        return db.query(statement)
      },
    },
  }
  const [domain, other] = [await newDomain(), await newDomain()]
  const channel = await tenant.newChannel(tenant.owner.call, domain)
  const refusing = await newTaskWithoutModule(domain, channel)
  await publish(domain, channel, 1)
  await until(
    'a dead letter',
    () => lettersOf(refusing),
    (total) => total === 1,
  )
  const { rows } = await sql<{ key: number }>`
    SELECT key FROM domains WHERE id = ANY (${[domain, other]}::uuid[]) ORDER BY id = ${other}`.execute(db)
  const [full, free] = rows.map(({ key }) => key) as [number, number]
  const limits = new Map([
    [full, 100],
    [free, DEFAULT_BYTES],
  ])
  const domains = createFullDomains(
    recording as never,
    { measure: () => undefined, ofDomain: (key) => limits.get(key) },
    logger,
  )
  const summing = () => statements.filter((text) => text.includes('pg_column_size'))
  const asked = (key: number, count: number) =>
    until(
      'it is read',
      () => {
        domains.has(key)
        return Promise.resolve(statements.length)
      },
      (read) => read >= count,
    )
  await asked(free, 1)
  expect([domains.has(free), summing()]).toEqual([false, []])
  await asked(full, 2)
  await until(
    'it is known',
    () => Promise.resolve(domains.has(full)),
    (isFull) => isFull,
  )
  expect(summing()).toHaveLength(3)
})

test('the bound is at least what all domains have, large messages by their size as JSON', async () => {
  const domain = await newDomain()
  const channel = await tenant.newChannel(tenant.owner.call, domain)
  const refusing = await newTaskWithoutModule(domain, channel)
  // Compressed, it is stored in a hundredth of this.
  await tenant.publish(tenant.owner.call, domain, channel, [{ n: 'a', vs: 'x'.repeat(600_000) }])
  await until(
    'a dead letter',
    () => lettersOf(refusing),
    (total) => total === 1,
  )
  const { db } = tenant.database
  const { rows } = await sql<{ key: number }>`SELECT key FROM domains`.execute(db)
  const keys = rows.map(({ key }) => key)
  const used = await readQueuedBytes(db, keys)
  const all = [...used.values()].reduce((sum, bytes) => sum + bytes, 0)
  expect(all).toBeGreaterThan(600_000)
  expect(await boundQueuedBytes(db, [])).toBeGreaterThanOrEqual(all)
})
