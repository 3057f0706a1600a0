// contract decision 76; docs/guides/quotas.md: the quota `queued_bytes`
import { expect, test } from 'vitest'
import { startTestTenant } from './platform.ts'
import { until } from './support.ts'
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
