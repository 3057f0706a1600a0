// docs/guides/commands.md: a command to many clients
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { idempotencyOf } from '#api/devices/commands/idempotency.ts'
import { pauseOf, roomOf, stopReason } from '#api/devices/commands/bulk/step.ts'
import { removeEnded } from '#api/devices/commands/sweep.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Statement } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi } from '../harness/api.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { expectStatus } from './commands-support.ts'
import type { Command, Offered } from './commands-support.ts'
import { newTenant } from './support.ts'
import type { Client } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

/** Both processes give parts of the same requests. */
let second: TestApi
beforeAll(async () => {
  const { database, address } = api
  second = await startTestApi({
    database: { database, address, [Symbol.asyncDispose]: () => Promise.resolve() } as never,
  })
}, 60_000)
afterAll(() => second[Symbol.asyncDispose]())

type Progress = Record<string, number>
type Bulk = { id: string; status: string; reason?: string; progress: Progress; ended_at?: string; tag?: string }

const path = () => `/${tenant.domainId}/clients/commands`
const give = (body: unknown) => tenant.call('POST', path(), body)
const given = async (body: unknown) => expectStatus(201, await give(body)).json<Bulk>()
const view = async (id: string) => expectStatus(200, await tenant.call('GET', `${path()}/${id}`)).json<Bulk>()
const deviceOf = (client: Client) => api.as(`Client ${client.credentials.secret}`)

async function newFleet(count: number): Promise<{ tag: string; clients: Client[] }> {
  const tag = `fleet-${newId()}`
  const bodies = Array.from({ length: count }, () => ({ tags: [tag] }))
  const made = await tenant.call('POST', `/${tenant.domainId}/clients/bulk`, bodies)
  return { tag, clients: expectStatus(200, made).json<{ clients: Client[] }>().clients }
}

/** The device answers what it has. Returns whether it had something. */
async function answerAll(client: Client, status = 'succeeded'): Promise<boolean> {
  const device = deviceOf(client)
  const { commands } = (await device('GET', `/c/${tenant.domainId}/commands`)).json<{ commands: Offered[] }>()
  for (const { id } of commands)
    expectStatus(200, await device('POST', `/c/${tenant.domainId}/commands/${id}/result`, { status }))
  return commands.length > 0
}

const ended = async (id: string) =>
  await until(async () => {
    const bulk = await view(id)
    return bulk.ended_at === undefined ? undefined : bulk
  }, 'it has ended')

describe('a command to many clients', () => {
  test('reaches each of them once, and says how far it is', async () => {
    const { tag, clients } = await newFleet(12)
    const [outside] = (await newFleet(1)).clients
    await tenant.call('POST', `/${tenant.domainId}/clients/${clients[0]?.id}/disable`)
    const bulk = await given({ name: 'upgrade', payload: { to: '1.4' }, tag, timeout: '1h' })
    expect(bulk).toMatchObject({ status: 'running', tag, at_once: 100, progress: { total: 11, waiting: 11 } })
    await until(async () => (await view(bulk.id)).progress['open'] === 11, 'all of them have it')
    for (const client of clients.slice(1)) expect(await answerAll(client)).toBe(true)
    expect(await ended(bulk.id)).toMatchObject({ status: 'finished', progress: { total: 11, succeeded: 11, open: 0 } })
    const { rows } = await sql<{
      total: number
    }>`SELECT count(*) AS total FROM device_commands WHERE name = 'upgrade'`.execute(api.database.db)
    expect(rows[0]?.total).toBe(11)
    const one = await tenant.call('GET', `/${tenant.domainId}/clients/${clients[1]?.id}/commands`)
    expect(one.json<{ commands: Command[] }>().commands).toMatchObject([
      { name: 'upgrade', payload: { to: '1.4' }, timeout: '1h', created_by: tenant.user.id, status: 'succeeded' },
    ])
    expect(await answerAll(outside as Client)).toBe(false)
    const { rows: recorded } = await sql<{
      operation: string
    }>`SELECT operation FROM journal WHERE attributes ->> 'id' = ${bulk.id}
      ORDER BY xid, seq`.execute(api.database.db)
    expect(recorded.map(({ operation }) => operation)).toEqual(['command.begin_many', 'command.end_many'])
  })

  test('goes to the clients of a group', async () => {
    const group = expectStatus(201, await tenant.call('POST', `/${tenant.domainId}/groups`, { name: 'hall' })).json<{
      id: string
    }>()
    const client = await tenant.newClient({ parent_group_id: group.id })
    const bulk = await given({ name: 'blink', group: group.id })
    await until(async () => await answerAll(client, 'rejected'), 'the client has it')
    expect(await ended(bulk.id)).toMatchObject({
      status: 'finished',
      group: group.id,
      progress: { total: 1, rejected: 1 },
    })
  })

  test('has at most as many open as are allowed at once', async () => {
    const { tag, clients } = await newFleet(9)
    const bulk = await given({ name: 'slow', tag, at_once: 2 })
    let most = 0
    await until(async () => {
      const { progress } = await view(bulk.id)
      const { rows } = await sql<{
        open: number
      }>`SELECT count(*) AS open FROM device_commands WHERE name = 'slow' AND ended_at IS NULL`.execute(api.database.db)
      most = Math.max(most, rows[0]?.open ?? 0)
      for (const client of clients) await answerAll(client)
      return progress['succeeded'] === 9
    }, 'all have answered')
    expect(most).toBe(2)
  })

  test('stops when too many do not succeed, and cancels what no device has', async () => {
    const { tag, clients } = await newFleet(30)
    const bulk = await given({ name: 'risky', tag, at_once: 12, stop_failed_percent: 20 })
    await until(async () => (await view(bulk.id)).progress['open'] === 12, 'the first have it')
    // The clients that have it, in whichever order they were chosen.
    const { rows } = await sql<{
      id: string
    }>`SELECT c.id FROM device_commands m JOIN clients c ON c.key = m.client_key WHERE m.name = 'risky'`.execute(
      api.database.db,
    )
    const [first, ...others] = rows.slice(0, 4).map(({ id }) => clients.find((client) => client.id === id) as Client)
    for (const client of others) await answerAll(client, 'failed')
    // One device has it, and does not answer yet.
    await deviceOf(first as Client)('GET', `/c/${tenant.domainId}/commands`)
    const stopped = await until(async () => {
      const now = await view(bulk.id)
      return now.status === 'stopped' ? now : undefined
    }, 'it has stopped')
    expect(stopped.reason).toContain('3 commands did not succeed: more than 20 %')
    expect(stopped.ended_at).toBeUndefined()
    await answerAll(first as Client)
    expect(await ended(bulk.id)).toMatchObject({
      status: 'stopped',
      progress: { succeeded: 1, failed: 3, cancelled: 26, waiting: 0, open: 0 },
    })
  })

  test('is cancelled, and its open commands end by themselves', async () => {
    const { tag, clients } = await newFleet(5)
    const bulk = await given({ name: 'wrong', tag, at_once: 3 })
    await until(async () => (await view(bulk.id)).progress['open'] === 3, 'the first have it')
    const { rows } = await sql<{
      id: string
    }>`SELECT c.id FROM device_commands m JOIN clients c ON c.key = m.client_key WHERE m.name = 'wrong' LIMIT 1`.execute(
      api.database.db,
    )
    const holder = clients.find((client) => client.id === rows[0]?.id) as Client
    await deviceOf(holder)('GET', `/c/${tenant.domainId}/commands`)
    const cancel = () => tenant.call('POST', `${path()}/${bulk.id}/cancel`)
    expect(expectStatus(200, await cancel()).json()).toMatchObject({ status: 'cancelled' })
    expectStatus(200, await cancel())
    await answerAll(holder)
    expect(await ended(bulk.id)).toMatchObject({ status: 'cancelled', progress: { succeeded: 1, cancelled: 4 } })
    expectStatus(200, await cancel())
  })

  test('leaves out clients that have too many open commands or are deleted', async () => {
    const { tag, clients } = await newFleet(3)
    const [full, deleted, last] = clients as [Client, Client, Client]
    await sql`INSERT INTO device_commands (id, client_key, name, bytes, timeout_ms, expires_at, due_at)
      SELECT gen_random_uuid(), c.key, 'other', 0, 1000, now() + interval '1 hour', now() + interval '1 hour'
        FROM clients c, generate_series(1, 100) WHERE c.id = ${full.id}`.execute(api.database.db)
    const bulk = await given({ name: 'partly', tag, at_once: 1 })
    await tenant.call('DELETE', `/${tenant.domainId}/clients/${deleted.id}`)
    await until(async () => await answerAll(last), 'the last one has it')
    const done = await ended(bulk.id)
    expect(done.progress['refused']).toBe(1)
    expect(done.progress['succeeded']).toBe(1)
    expect(done.status).toBe('finished')
  })

  test('keeps a bounded number of ended commands of each client', async () => {
    const { tag, clients } = await newFleet(2)
    const [long, short] = clients as [Client, Client]
    await sql`INSERT INTO device_commands (id, client_key, name, bytes, status, timeout_ms, expires_at, due_at, ended_at)
      SELECT gen_random_uuid(), c.key, 'before', 0, 'cancelled', 1000, now(), now(), now() FROM clients c
        CROSS JOIN LATERAL generate_series(1, CASE WHEN c.id = ${long.id} THEN 1100 ELSE 3 END)
       WHERE c.id IN (${long.id}, ${short.id})`.execute(api.database.db)
    const bulk = await given({ name: 'again', tag })
    await until(async () => (await view(bulk.id)).progress['open'] === 2, 'both have it')
    const kept = async ({ id }: Client) =>
      (await tenant.call('GET', `/${tenant.domainId}/clients/${id}/commands?name=before`)).json<{ total: number }>()
        .total
    expect([await kept(long), await kept(short)]).toEqual([1000, 3])
    await tenant.call('POST', `${path()}/${bulk.id}/cancel`)
  })

  test('expires as a whole', async () => {
    const { tag } = await newFleet(3)
    const bulk = await given({ name: 'late', tag, at_once: 1 })
    await until(async () => (await view(bulk.id)).progress['open'] === 1, 'the first has it')
    await sql`UPDATE device_command_bulks SET expires_at = now() WHERE id = ${bulk.id}`.execute(api.database.db)
    await sql`UPDATE device_commands SET expires_at = now(), due_at = now() WHERE name = 'late'`.execute(
      api.database.db,
    )
    expect(await ended(bulk.id)).toMatchObject({ status: 'finished', progress: { expired: 3 } })
    expectStatus(409, await tenant.call('POST', `${path()}/${bulk.id}/cancel`))
  })

  test('is listed, the newest first', async () => {
    const { tag } = await newFleet(1)
    const [one, two] = [await given({ name: 'a', tag }), await given({ name: 'b', tag })]
    const page = (await tenant.call('GET', `${path()}?limit=2`)).json<{ total: number; commands: Bulk[] }>()
    expect(page.commands.map(({ id }) => id)).toEqual([two.id, one.id])
    for (const { id } of [one, two]) await tenant.call('POST', `${path()}/${id}/cancel`)
  })
})

describe('an Idempotency-Key', () => {
  const giveWith = async (key: string, body: unknown) => {
    // Of requests at once, one waits for the other: on a busy machine, it may be refused for now.
    for (;;) {
      const response = await tenant.call('POST', path(), body, { 'idempotency-key': key })
      if (response.status !== 503) return response
    }
  }

  test('gives one command to many, also when both requests come at once and the clients have changed since', async () => {
    const { tag, clients } = await newFleet(2)
    const [key, body] = [newId(), { name: 'once', tag, per_minute: 60, timeout: '1h' }]
    const both = await Promise.all([giveWith(key, body), giveWith(key, body)])
    const [id, ...others] = both.map((response) => expectStatus(201, response).json<Bulk>().id)
    expect(others).toEqual([id])
    for (const client of clients) await tenant.call('POST', `/${tenant.domainId}/clients/${client.id}/disable`)
    expect(expectStatus(201, await giveWith(key, body)).json<Bulk>().id).toBe(id)
    for (const other of [
      { ...body, per_minute: 61 },
      { ...body, name: 'twice' },
      { ...body, tag: 'other' },
    ])
      expectStatus(422, await giveWith(key, other))
    for (const bad of ['', 'k'.repeat(256)]) expectStatus(400, await giveWith(bad, body))
    expectStatus(200, await tenant.call('POST', `${path()}/${id}/cancel`))
  })

  test('finds its request when the commands have expired', async () => {
    const { tag } = await newFleet(1)
    const [key, body, past] = [newId(), { name: 'once', tag, at_once: 1 }, '2020-01-01T00:00:00Z']
    const { id } = expectStatus(201, await giveWith(key, body)).json<Bulk>()
    // As if it had been given before that time.
    const more = [tag, null, 1, null, null]
    const digest = idempotencyOf({ key: 1 } as never, key, { name: 'once', expires_at: past }, more)?.requestDigest
    await sql`UPDATE device_command_bulks SET request_digest = ${digest} WHERE id = ${id}::uuid`.execute(
      api.database.db,
    )
    expect(expectStatus(201, await giveWith(key, { ...body, expires_at: past })).json<Bulk>().id).toBe(id)
    expectStatus(400, await giveWith(newId(), { ...body, expires_at: past }))
    expectStatus(200, await tenant.call('POST', `${path()}/${id}/cancel`))
  })

  test('is forgotten after 24 hours', async () => {
    const { tag } = await newFleet(1)
    const [key, body] = [newId(), { name: 'daily', tag }]
    const first = expectStatus(201, await giveWith(key, body)).json<Bulk>().id
    await sql`UPDATE device_command_bulks SET created_at = now() - interval '25 h' WHERE id = ${first}::uuid`.execute(
      api.database.db,
    )
    const second = expectStatus(201, await giveWith(key, body)).json<Bulk>().id
    expect(second).not.toBe(first)
    expect(expectStatus(201, await giveWith(key, body)).json<Bulk>().id).toBe(second)
    for (const id of [first, second]) expectStatus(200, await tenant.call('POST', `${path()}/${id}/cancel`))
  })
})

describe('what has ended', () => {
  const rowsOf = async (id: string) => {
    const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM device_command_targets t
      JOIN device_command_bulks b ON b.key = t.bulk_key WHERE b.id = ${id}::uuid`.execute(api.database.db)
    return rows[0]?.total
  }

  test('keeps its counts, also when its clients are deleted, and no row for each client', async () => {
    const { tag, clients } = await newFleet(3)
    const bulk = await given({ name: 'counted', tag })
    expect(await rowsOf(bulk.id)).toBe(3)
    await until(async () => (await view(bulk.id)).progress['open'] === 3, 'all of them have it')
    for (const client of clients) await answerAll(client, 'failed')
    expect((await ended(bulk.id)).progress).toMatchObject({ total: 3, failed: 3, open: 0 })
    expect(await rowsOf(bulk.id)).toBe(0)
    for (const { id } of clients) expectStatus(200, await tenant.call('DELETE', `/${tenant.domainId}/clients/${id}`))
    expect((await view(bulk.id)).progress).toMatchObject({ total: 3, failed: 3 })
  })

  test('is counted by nodes of an earlier version, too', async () => {
    const { tag, clients } = await newFleet(2)
    await sql`INSERT INTO nodes (id, kind, version, migration, seen_at) VALUES ('older', 'api', '0', 1, now() + interval '1 hour')`.execute(
      api.database.db,
    )
    try {
      const bulk = await given({ name: 'older', tag })
      await until(async () => (await view(bulk.id)).progress['open'] === 2, 'both have it')
      for (const client of clients) await answerAll(client)
      expect((await ended(bulk.id)).progress).toMatchObject({ total: 2, succeeded: 2 })
      expect(await rowsOf(bulk.id)).toBe(2)
    } finally {
      await sql`DELETE FROM nodes WHERE id = 'older'`.execute(api.database.db)
    }
  })

  test('is removed after its days, some at a time', async () => {
    const other = await newTenant(api)
    await sql`INSERT INTO device_command_bulks (id, domain_key, name, bytes, timeout_ms, expires_at, tag, at_once, status, created_by, ended_at)
      SELECT gen_random_uuid(), d.key, 'old', 0, 1000, now(), 't', 1, 'finished', gen_random_uuid(),
          now() - CASE WHEN n > 25 THEN interval '29 days' ELSE interval '31 days' END
        FROM domains d, generate_series(1, 27) n WHERE d.id = ${other.domainId}`.execute(api.database.db)
    const removed: number[] = []
    await removeEnded({
      async query<Row>(statement: Statement) {
        const result = await api.database.db.query<Row>(statement)
        if (statement.text.includes('FROM device_command_bulks')) removed.push(Number(result.numAffectedRows ?? 0n))
        return result
      },
    })
    // The sweeps of the processes may have taken some of them.
    for (const count of removed) expect(count).toBeLessThanOrEqual(10)
    expect(removed.length).toBeGreaterThan(0)
    const page = (await other.call('GET', `/${other.domainId}/clients/commands`)).json<{ total: number }>()
    expect(page.total).toBe(2)
  })

  test('is kept in a bounded number of each domain', async () => {
    const other = await newTenant(api)
    const insert = async (domain: string, count: number) =>
      await sql`INSERT INTO device_command_bulks (id, domain_key, name, bytes, timeout_ms, expires_at, tag, at_once, status, created_by, ended_at)
        SELECT gen_random_uuid(), d.key, 'before', 0, 1000, now(), 't', 1, 'finished', gen_random_uuid(), now()
          FROM domains d, generate_series(1, ${count}) WHERE d.id = ${domain}`.execute(api.database.db)
    await insert(other.domainId, 1_015)
    await insert(tenant.domainId, 3)
    await other.newClient({ tags: ['one'] })
    const total = async (domain: string) => {
      const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM device_command_bulks b
        JOIN domains d ON d.key = b.domain_key WHERE d.id = ${domain} AND b.name = 'before'`.execute(api.database.db)
      return rows[0]?.total
    }
    const one = () => other.call('POST', `/${other.domainId}/clients/commands`, { name: 'next', tag: 'one' })
    // The oldest go first, at most 10 with each request.
    expectStatus(201, await one())
    expect(await total(other.domainId)).toBe(1_005)
    expectStatus(201, await one())
    expect(await total(other.domainId)).toBe(1_000)
    expect(await total(tenant.domainId)).toBe(3)
  })
})

describe('bounds', () => {
  test('what is malformed or selects nothing is refused', async () => {
    const { tag } = await newFleet(1)
    for (const [status, body] of [
      [400, { name: 'a' }],
      [400, { name: 'a', tag, group: newId() }],
      [400, { name: 'a b', tag }],
      [400, { name: 'a', tag, at_once: 0 }],
      [400, { name: 'a', tag, at_once: 10_001 }],
      [400, { name: 'a', tag, per_minute: 0 }],
      [400, { name: 'a', tag, stop_failed_percent: 100 }],
      [400, { name: 'a', tag, expires_at: '2020-01-01T00:00:00Z' }],
      [400, { name: 'a', group: 'hall' }],
      [413, { name: 'a', tag, payload: 'x'.repeat(70_000) }],
      [422, { name: 'a', tag: 'no-such-tag' }],
      [422, { name: 'a', group: newId() }],
    ] as const)
      expect([(await give(body)).status, body]).toEqual([status, body])
  })

  test('a domain has a bounded number of them that run, also when many are given at once', async () => {
    const own = await newTenant(api)
    await own.newClient({ tags: ['all'] })
    const statuses = await Promise.all(
      Array.from({ length: 14 }, async () => {
        const response = await own.call('POST', `/${own.domainId}/clients/commands`, { name: 'a', tag: 'all' })
        return response.status
      }),
    )
    expect(statuses.filter((status) => status === 201)).toHaveLength(10)
    expect(statuses.filter((status) => status === 422)).toHaveLength(4)
  })

  test('another tenant sees and changes nothing', async () => {
    const { tag } = await newFleet(1)
    const { id } = await given({ name: 'a', tag })
    const foreign = await newTenant(api)
    for (const [method, url] of [
      ['GET', `${path()}/${id}`],
      ['GET', path()],
      ['POST', `${path()}/${id}/cancel`],
    ] as const)
      expectStatus(403, await foreign.call(method, url))
    expectStatus(404, await foreign.call('GET', `/${foreign.domainId}/clients/commands/${id}`))
    expectStatus(404, await foreign.call('POST', `/${foreign.domainId}/clients/commands/${id}/cancel`))
    // A tag of the same name selects clients of the own domain only.
    expectStatus(422, await foreign.call('POST', `/${foreign.domainId}/clients/commands`, { name: 'a', tag }))
    expect((await view(id)).status).toBe('running')
    await tenant.call('POST', `${path()}/${id}/cancel`)
  })
})

describe('the ramp', () => {
  const none = {
    total: 1000,
    waiting: 1000,
    open: 0,
    refused: 0,
    succeeded: 0,
    failed: 0,
    rejected: 0,
    timed_out: 0,
    expired: 0,
    cancelled: 0,
  }

  test('gives no more per minute than is allowed', () => {
    const room = (ageSeconds: number, started: number, open = 0) =>
      roomOf({ atOnce: 100, perMinute: 60, ageSeconds, progress: { ...none, waiting: none.total - started, open } })
    expect(room(0, 0)).toBe(1)
    expect(room(10, 0)).toBe(11)
    expect(room(10, 11)).toBe(0)
    expect(room(600, 0)).toBe(100)
    expect(room(600, 100, 99)).toBe(1)
    expect(room(600, 100, 100)).toBe(0)
  })

  test('looks less often while nothing happens, the less often the more clients there are', () => {
    const pause = (total: number, given = 0, ended = 0) => pauseOf({ ended, progress: { ...none, total } }, given)
    expect([pause(3), pause(20_000), pause(100_000)]).toEqual([500, 2_000, 10_000])
    expect([pause(100_000, 1), pause(100_000, 0, 1), pause(100_000, 500)]).toEqual([500, 500, 0])
  })

  test('compares failures with ten ended commands at least', () => {
    const reason = (stopPercent: number | null, more: Partial<typeof none>) =>
      stopReason({ stopPercent, progress: { ...none, ...more } })
    expect(reason(null, { failed: 900 })).toBeUndefined()
    expect(reason(10, { failed: 1 })).toBeUndefined()
    expect(reason(10, { failed: 1, rejected: 1 })).toBeDefined()
    expect(reason(10, { succeeded: 90, timed_out: 10 })).toBeUndefined()
    expect(reason(10, { succeeded: 89, timed_out: 10, refused: 1 })).toBeDefined()
    expect(reason(0, { expired: 1 })).toBeDefined()
    expect(reason(50, { total: 2, failed: 1 })).toBeUndefined()
    expect(reason(50, { total: 2, failed: 2 })).toBeDefined()
  })
})
