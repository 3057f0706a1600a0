// Contract decision 76: quotas of stored records and of exports. The count follows arrivals within seconds, so tests wait for it.
import { expect, test } from 'vitest'
import { COAP_METRICS, CoapServer } from '#api/adapters/coap/index.ts'
import { projectPending } from '#api/messages/projections/project.ts'
import { deleteDroppedCounts } from '#api/messages/projections/dropped-weeks.ts'
import { createMetrics } from '#http/index.ts'
import { sql } from '#core/sql.ts'
import { newTenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { openPeer } from './coap-peer.ts'

const api = useWorld(() => startTestApi())

type Usage = { quotas: Record<string, { limit: number | null; used: number | null }> }

async function newPlant() {
  const tenant = await newTenant(api)
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  await tenant.connect(client.id, channel.id)
  const path = `/m/${tenant.domainId}/c/${channel.id}`
  const device = api.as(`Client ${client.credentials.secret}`)
  return {
    tenant,
    path,
    device,
    channelId: channel.id,
    secret: client.credentials.secret,
    send: (body: string, type = 'application/senml+json') => device('POST', path, body, { 'content-type': type }),
    limit: async (own: Record<string, number>) => {
      const answer = await api.admin('PUT', `/domains/${tenant.domainId}/quotas`, { own })
      expect(answer.status, answer.text).toBe(200)
    },
    used: async (name: string) => {
      await projectPending(api.database)
      return (await tenant.call('GET', `/domains/${tenant.domainId}/usage`)).json<Usage>().quotas[name]
    },
  }
}

const pack = (records: number, from = 1_700_000_000) =>
  JSON.stringify(Array.from({ length: records }, (_, index) => ({ n: 'a', t: from + index, v: index })))

test('stored records are counted as they are stored and deleted, of every kind of message', async () => {
  const plant = await newPlant()
  expect((await plant.send(pack(100))).status).toBe(202)
  expect((await plant.send('[{"x":1},{"x":2}]', 'application/json')).status).toBe(202)
  expect((await plant.send('text', 'text/plain')).status).toBe(202)
  expect(await plant.used('stored_records')).toEqual({ limit: null, used: 103 })
  const messages = `/${plant.tenant.domainId}/channels/${plant.channelId}/messages`
  // Within a chunk: the rest of it is written again.
  const removed = await plant.tenant.call('DELETE', `${messages}?from=1700000000&to=1700000010`)
  expect(removed.status, removed.text).toBe(204)
  expect(await plant.used('stored_records')).toEqual({ limit: null, used: 93 })
  expect((await plant.tenant.call('DELETE', `${messages}?from=0`)).status).toBe(204)
  expect(await plant.used('stored_records')).toEqual({ limit: null, used: 0 })
})

test('what other processes committed is counted from the tables as from memory', async () => {
  const plant = await newPlant()
  const { domainId } = plant.tenant
  expect((await plant.send(pack(70))).status).toBe(202)
  expect((await plant.send('{"x":1}', 'application/json')).status).toBe(202)
  await projectPending(api.database)
  const rows = async () =>
    (
      await sql<{ records: number; weeks: number }>`
        SELECT sum(u.records)::int AS records, count(*)::int AS weeks FROM domain_stored_records u
          JOIN domains d ON d.key = u.domain_key WHERE d.id = ${domainId}`.execute(api.database.db)
    ).rows
  expect(await rows()).toEqual([{ records: 71, weeks: 1 }])
  // A week whose partitions are gone is forgotten, the present one is not.
  await sql`
    INSERT INTO domain_stored_records SELECT key, 7, '2020-01-06T00:00:00Z', 5 FROM domains WHERE id = ${domainId}`.execute(
    api.database.db,
  )
  expect(await rows()).toEqual([{ records: 76, weeks: 2 }])
  await deleteDroppedCounts(api.database)
  expect(await rows()).toEqual([{ records: 71, weeks: 1 }])
})

test('beyond the quota of stored records HTTP answers 422 and CoAP 4.29, and deletion makes room', async () => {
  const plant = await newPlant()
  await plant.limit({ stored_records: 10 })
  expect((await plant.send(pack(9))).status).toBe(202)
  // One more than the quota is the last that finds room: a message is stored whole.
  await plant.used('stored_records')
  expect((await plant.send(pack(5, 1_700_001_000))).status).toBe(202)
  await plant.used('stored_records')
  const refused = await until(async () => {
    const answer = await plant.send('[{"n":"b","v":1}]')
    await projectPending(api.database)
    return answer.status === 202 ? undefined : answer
  }, 'a refusal')
  expect(refused.status).toBe(422)
  expect(refused.json()).toMatchObject({ error: 'quota_exceeded' })
  expect(refused.json<{ message: string }>().message).toMatch(
    /^the quota of the domain is 10 stored records; \d+ are stored$/,
  )

  const coap = await CoapServer.start({
    host: '127.0.0.1',
    port: 0,
    gate: api.api.devices.gate,
    topics: api.api.devices.topics,
    messages: api.api.messages,
    maxBodyBytes: 100_000,
    metrics: createMetrics([COAP_METRICS.set]),
    logger,
  })
  using peer = await openPeer(coap.port)
  const answer = await peer.request({
    code: '0.02',
    path: `${plant.path}?auth=${plant.secret}`,
    payload: '[{"n":"b","v":1}]',
  })
  expect(answer.code).toBe('4.29')
  await coap.stop()

  // Members still read, and delete.
  expect((await plant.device('GET', plant.path)).status).toBe(200)
  const messages = `/${plant.tenant.domainId}/channels/${plant.channelId}/messages`
  expect((await plant.tenant.call('DELETE', `${messages}?from=0`)).status).toBe(204)
  await until(async () => (await plant.send(pack(1))).status === 202, 'room')
})

test('other domains are not concerned, and a domain without a quota is not counted before it publishes', async () => {
  const [full, other] = [await newPlant(), await newPlant()]
  await full.limit({ stored_records: 0 })
  expect((await full.send(pack(1))).status).toBe(422)
  expect((await other.send(pack(1))).status).toBe(202)
  await full.limit({})
  expect((await full.send(pack(1))).status).toBe(202)
})

test('an export beyond those of the day is refused with 429 until midnight in UTC; pages are not', async () => {
  const plant = await newPlant()
  expect((await plant.send(pack(1))).status).toBe(202)
  await plant.limit({ exports_per_day: 2 })
  const read = () => plant.device('GET', plant.path, undefined, { accept: 'text/csv' })
  expect([(await read()).status, (await read()).status]).toEqual([200, 200])
  const refused = await read()
  expect(refused.status).toBe(429)
  expect(refused.json()).toEqual({
    error: 'rate_limited',
    message: 'the quota of the domain is 2 exports per day, and used up until midnight in UTC',
  })
  const retryAfter = Number(refused.headers['retry-after'])
  expect(retryAfter).toBeGreaterThan(0)
  expect(retryAfter).toBeLessThanOrEqual(86_400)
  expect((await plant.device('GET', plant.path)).status).toBe(200)
  expect(await plant.used('exports_per_day')).toEqual({ limit: 2, used: 2 })
  await plant.limit({ exports_per_day: 3 })
  expect((await read()).status).toBe(200)
})

test('exports that are asked for together stay within the quota of the day', async () => {
  const plant = await newPlant()
  await plant.limit({ exports_per_day: 1 })
  const answers = await Promise.all(
    [1, 2, 3].map(() => plant.device('GET', plant.path, undefined, { accept: 'text/csv' })),
  )
  expect(answers.map(({ status }) => status).toSorted((one, other) => one - other)).toEqual([200, 429, 429])
})
