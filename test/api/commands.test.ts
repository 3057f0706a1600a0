// contract decisions 54, 100 and 101; docs/guides/commands.md
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { idempotencyOf } from '#api/devices/commands/idempotency.ts'
import { OpenCommands } from '#api/devices/commands/open.ts'
import { sweepOnce } from '#api/devices/commands/sweep.ts'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi } from '../harness/api.ts'
import { silentLogger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { expectStatus, newCommanded } from './commands-support.ts'
import type { Command, Commanded } from './commands-support.ts'
import { newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

/** A second process of the platform over the same database, which learns of changes from the journal alone. */
let second: TestApi
beforeAll(async () => {
  const { database, address } = api
  second = await startTestApi({
    database: { database, address, [Symbol.asyncDispose]: () => Promise.resolve() } as never,
  })
}, 60_000)
afterAll(() => second[Symbol.asyncDispose]())

const newDevice = () => newCommanded(api, tenant)
const db = () => api.database.db

/** The time of an open command has passed. */
async function passTime(id: string): Promise<void> {
  await sql`UPDATE device_commands SET expires_at = now() - interval '1 second', due_at = now() - interval '1 second' WHERE id = ${id}`.execute(
    db(),
  )
}

const operationsOf = async (id: string) => {
  const { rows } = await sql<{
    operation: string
    status: string
  }>`SELECT operation, attributes ->> 'status' AS status FROM journal
    WHERE attributes ->> 'id' = ${id} ORDER BY xid, seq`.execute(db())
  return rows.map(({ operation, status }) => `${operation} ${status}`)
}

const untilWaiting = async () => {
  // A request that waits has looked once before.
  await new Promise((resolve) => setTimeout(resolve, 50))
}

describe('a command', () => {
  test('is given, delivered and answered, and each transition is in the journal', async () => {
    const device = await newDevice()
    const response = expectStatus(
      201,
      await device.give({ name: 'reboot', payload: { delay: 5, serial: 1 }, timeout: '30s' }),
    )
    const made = response.json<Command>()
    expect(response.headers['location']).toBe(`${device.path}/${made.id}`)
    expect(made).toMatchObject({
      client_id: device.client.id,
      domain_id: tenant.domainId,
      name: 'reboot',
      payload: { delay: 5, serial: 1 },
      status: 'queued',
      timeout: '30s',
      created_by: tenant.user.id,
    })
    expect(made).not.toHaveProperty('delivered_at')
    expect(Date.parse(made.expires_at) - Date.parse(made.created_at)).toBeCloseTo(86_400_000, -4)

    const taken = await device.taken()
    expect(taken).toEqual([
      {
        id: made.id,
        name: 'reboot',
        payload: { delay: 5, serial: 1 },
        created_at: made.created_at,
        expires_at: made.expires_at,
      },
    ])
    expect(await device.view(made.id)).toMatchObject({ status: 'delivered', delivered_at: expect.any(String) })

    const answered = expectStatus(200, await device.answer(made.id, { status: 'succeeded', result: { uptime: 3 } }))
    expect(answered.json()).toEqual({ id: made.id, status: 'succeeded', late: false })
    const ended = await device.view(made.id)
    expect(ended).toMatchObject({ status: 'succeeded', result: { uptime: 3 }, ended_at: expect.any(String) })
    expect(ended).not.toHaveProperty('reason')
    expect(await device.taken()).toEqual([])
    expect(await operationsOf(made.id)).toEqual([
      'command.create queued',
      'command.deliver delivered',
      'command.answer succeeded',
    ])
    const journal = await tenant.call(
      'GET',
      `/${tenant.domainId}/journal/client/${device.client.id}?operation=command.answer`,
    )
    expect(journal.json()).toMatchObject({ total: 1, journals: [{ operation: 'command.answer' }] })
  })

  test.each(['succeeded', 'failed', 'rejected'])(
    'can be answered with %s, also before it was taken',
    async (status) => {
      const device = await newDevice()
      const { id } = await device.given({ name: 'open' })
      expectStatus(200, await device.answer(id, { status, reason: 'because' }))
      expect(await device.view(id)).toMatchObject({ status, reason: 'because', delivered_at: expect.any(String) })
    },
  )

  test.each([
    ['null', null],
    ['zero', 0],
    ['false', false],
    ['a text', ''],
    ['a list', [1, [2, {}]]],
    ['an object', { a: { b: null } }],
  ])('takes %s as payload and as result', async (_what, value) => {
    const device = await newDevice()
    const { id, payload } = await device.given({ name: 'set', payload: value })
    expect(payload).toEqual(value)
    expect((await device.taken())[0]).toHaveProperty('payload', value)
    expectStatus(200, await device.answer(id, { status: 'succeeded', result: value }))
    expect(await device.view(id)).toHaveProperty('result', value)
  })

  test('keeps integers above 2^53 of an object', async () => {
    const device = await newDevice()
    const body = '{"name":"set","payload":{"serial":9007199254740993}}'
    const given = await device.give(body, '', { 'content-type': 'application/json' })
    expect(given.text).toContain('"payload":{"serial":9007199254740993}')
    expect((await device.poll()).text).toContain('"payload":{"serial":9007199254740993}')
  })

  test('is listed, the newest first, by state and name', async () => {
    const device = await newDevice()
    const [first, second_, third] = [
      await device.given({ name: 'a' }),
      await device.given({ name: 'b' }),
      await device.given({ name: 'a' }),
    ]
    await device.cancel(first.id)
    const list = async (query: string) =>
      (await tenant.call('GET', `${device.path}${query}`)).json<{ total: number; next?: string; commands: Command[] }>()
    expect((await list('')).commands.map(({ id }) => id)).toEqual([third.id, second_.id, first.id])
    expect((await list('?status=open&name=a')).commands.map(({ id }) => id)).toEqual([third.id])
    expect((await list('?status=cancelled,failed')).commands.map(({ id }) => id)).toEqual([first.id])
    const page = await list('?limit=2')
    expect(page).toMatchObject({ total: 3, limit: 2 })
    expect((await list(`?limit=2&cursor=${page.next}`)).commands.map(({ id }) => id)).toEqual([first.id])
    expectStatus(400, await tenant.call('GET', `${device.path}?status=gone`))
  })

  test('is removed with its client', async () => {
    const device = await newDevice()
    const { id } = await device.given({ name: 'a' })
    await tenant.call('DELETE', `/${tenant.domainId}/clients/${device.client.id}`)
    const { rows } = await sql`SELECT FROM device_commands WHERE id = ${id}`.execute(db())
    expect(rows).toEqual([])
  })
})

describe('bounds', () => {
  test('what is malformed is refused, and the field is named', async () => {
    const device = await newDevice()
    const refused: [string, unknown][] = [
      ['/name', {}],
      ['/name', { name: '' }],
      ['/name', { name: 'a/b' }],
      ['/name', { name: '$a' }],
      ['/name', { name: '+' }],
      ['/name', { name: 'x'.repeat(65) }],
      ['/name', { name: 5 }],
      ['/timeout', { name: 'a', timeout: '1ms' }],
      ['/timeout', { name: 'a', timeout: '200h' }],
      ['/timeout', { name: 'a', timeout: 'soon' }],
      ['/timeout', { name: 'a', timeout: 30 }],
      ['/expires_at', { name: 'a', expires_at: 'tomorrow' }],
      ['/expires_at', { name: 'a', expires_at: '2020-01-01T00:00:00Z' }],
      ['/expires_at', { name: 'a', expires_at: '2999-01-01T00:00:00Z' }],
      ['/expires_at', { name: 'a', expires_at: '2999-13-01T00:00:00Z' }],
      ['/payload', { name: 'a', payload: 'a\0b' }],
    ]
    for (const [path, body] of refused) {
      const response = await device.give(body)
      expect(response.status, JSON.stringify(body)).toBe(400)
      expect(response.json<{ details: { path: string }[] }>().details[0]?.path, JSON.stringify(body)).toBe(path)
    }
    expectStatus(400, await device.give({ name: 'a' }, '?wait=2m'))
    expectStatus(400, await device.give({ name: 'a' }, '?wait=x'))
    const deep = `{"name":"a","payload":${'['.repeat(5_000)}${']'.repeat(5_000)}}`
    expectStatus(400, await device.give(deep, '', { 'content-type': 'application/json' }))
    expect((await tenant.call('GET', device.path)).json()).toMatchObject({ total: 0 })
  })

  test('a payload of 64 KiB is accepted, and a larger one refused', async () => {
    const device = await newDevice()
    const most = 'x'.repeat(65_536 - 2)
    await device.given({ name: 'a', payload: most })
    expectStatus(413, await device.give({ name: 'a', payload: `${most}x` }))
  })

  test('numbers count as the database writes them', async () => {
    const device = await newDevice()
    const numbers = (count: number) => Array.from({ length: count }, () => 1e300)
    const { id } = await device.given({ name: 'a', payload: numbers(200) })
    expectStatus(413, await device.give({ name: 'a', payload: numbers(220) }))
    expectStatus(413, await device.answer(id, { status: 'succeeded', result: numbers(220) }))
    expect(await device.view(id)).toMatchObject({ status: 'failed' })
    expect((await device.view(id)).reason).toContain('at most 65536')
    const wide = await device.given({ name: 'a' })
    expectStatus(200, await device.answer(wide.id, { status: 'succeeded', result: numbers(200) }))
  })

  test('a client has 100 open commands at most, also when many are given at once', async () => {
    const device = await newDevice()
    // They wait for one row: on a busy machine, some are refused for now.
    const give = async (): Promise<number> => {
      const { status } = await device.give({ name: 'a' })
      return status === 503 ? await give() : status
    }
    const statuses = await Promise.all(Array.from({ length: 120 }, give))
    expect(statuses.toSorted((left, right) => left - right)).toEqual([
      ...Array.from({ length: 100 }, () => 201),
      ...Array.from({ length: 20 }, () => 422),
    ])
    const refused = await device.give({ name: 'a' })
    expect(refused.status).toBe(422)
    expect(refused.text).toContain('at most 100')
    const [one] = await device.taken()
    await device.answer(one?.id ?? '', { status: 'succeeded' })
    expectStatus(201, await device.give({ name: 'a' }))
  }, 120_000)

  test('the payloads of open commands have 1 MiB at most', async () => {
    const device = await newDevice()
    const payload = 'x'.repeat(65_000)
    for (let count = 0; count < 16; count++) expectStatus(201, await device.give({ name: 'a', payload }))
    const refused = await device.give({ name: 'a', payload })
    expect([refused.status, refused.text]).toEqual([422, expect.stringContaining('at most 1048576')])
    expectStatus(201, await device.give({ name: 'a' }))
  })

  test('a larger result than 64 KiB is refused, and the command has failed with the reason', async () => {
    const device = await newDevice()
    const { id } = await device.given({ name: 'a' })
    const most = 'x'.repeat(65_536 - 2)
    expectStatus(413, await device.answer(id, { status: 'succeeded', result: `${most}x` }))
    const ended = await device.view(id)
    expect(ended).toMatchObject({ status: 'failed', reason: expect.stringContaining('65537 bytes') })
    expect(ended).not.toHaveProperty('result')
    const other = await device.given({ name: 'a' })
    expectStatus(200, await device.answer(other.id, { status: 'succeeded', result: most }))
  })

  test('commands of a day count against the quota of the domain', async () => {
    const own = await newTenant(api)
    const device = await newCommanded(api, own)
    await api.admin('PUT', `/domains/${own.domainId}/quotas`, { own: { commands_per_day: 2 } })
    await api.api.identity.quotas.settled()
    await until(async () => {
      const { status } = await device.give({ name: 'a' })
      return status === 429
    }, 'the quota is used up')
    expect((await own.call('GET', device.path)).json<{ total: number }>().total).toBeLessThanOrEqual(3)
    const usage = (await own.call('GET', `/domains/${own.domainId}/usage`)).text
    expect(usage).toContain('commands_per_day')
  })

  test('ended commands are kept in a bounded number', async () => {
    const device = await newDevice()
    const { id } = await device.given({ name: 'a' })
    await device.cancel(id)
    await sql`INSERT INTO device_commands (id, client_key, name, bytes, status, timeout_ms, expires_at, due_at, ended_at)
      SELECT gen_random_uuid(), client_key, 'b', 0, 'cancelled', 1000, now(), now(), now() FROM device_commands, generate_series(1, 1100)
       WHERE id = ${id}`.execute(db())
    await device.given({ name: 'c' })
    expect((await tenant.call('GET', `${device.path}?status=cancelled`)).json()).toMatchObject({ total: 1000 })
    expectStatus(404, await tenant.call('GET', `${device.path}/${id}`))
  })
})

describe('an Idempotency-Key', () => {
  test('gives one command, also when both requests come at once', async () => {
    const device = await newDevice()
    const key = { 'idempotency-key': newId() }
    const responses = await Promise.all([1, 2, 3].map(() => device.give({ name: 'a', payload: 1 }, '', key)))
    expect(new Set(responses.map((response) => expectStatus(201, response).json<Command>().id)).size).toBe(1)
    expect((await tenant.call('GET', device.path)).json()).toMatchObject({ total: 1 })
    expectStatus(422, await device.give({ name: 'a', payload: 2 }, '', key))
    const other = await newDevice()
    expectStatus(201, await other.give({ name: 'a', payload: 2 }, '', key))
    expectStatus(400, await device.give({ name: 'a' }, '', { 'idempotency-key': 'x'.repeat(256) }))
  })

  test('finds its command when no more can be given, and when the command has expired', async () => {
    const own = await newTenant(api)
    const device = await newCommanded(api, own)
    const [key, past] = [newId(), { name: 'a', expires_at: '2020-01-01T00:00:00Z' }]
    const given = async (body: { name: string }) =>
      expectStatus(201, await device.give(body, '', { 'idempotency-key': key })).json<Command>()
    const { id } = await given({ name: 'a' })
    await api.admin('PUT', `/domains/${own.domainId}/quotas`, { own: { commands_per_day: 1 } })
    await api.api.identity.quotas.settled()
    await until(async () => (await device.give({ name: 'b' })).status === 429, 'the quota is used up')
    expect((await given({ name: 'a' })).id).toBe(id)
    // As if it had been given before that time.
    const digest = idempotencyOf({ key: 1 } as never, key, past)?.requestDigest
    await sql`UPDATE device_commands SET request_digest = ${digest} WHERE id = ${id}`.execute(db())
    expect((await given(past)).id).toBe(id)
    await api.admin('PUT', `/domains/${own.domainId}/quotas`, { own: { commands_per_day: 1000 } })
    expectStatus(400, await device.give(past, '', { 'idempotency-key': newId() }))
  })

  test('is forgotten after 24 hours', async () => {
    const device = await newDevice()
    const key = { 'idempotency-key': newId() }
    const first = expectStatus(201, await device.give({ name: 'a' }, '', key)).json<Command>()
    await sql`UPDATE device_commands SET created_at = now() - interval '25 hours' WHERE id = ${first.id}`.execute(db())
    expect(expectStatus(201, await device.give({ name: 'b' }, '', key)).json<Command>().id).not.toBe(first.id)
  })
})

describe('waiting', () => {
  test('a user who waits gets the result, from another process too', async () => {
    const device = await newDevice()
    for (const asked of [tenant.call, second.as(`Bearer ${tenant.user.accessToken}`)]) {
      const waiting = asked('POST', `${device.path}?wait=30s`, { name: 'a' })
      await until(async () => (await device.taken()).length > 0, 'the device has the command')
      const [one] = await device.taken()
      await device.answer(one?.id ?? '', { status: 'succeeded', result: 42 })
      expect(expectStatus(201, await waiting).json()).toMatchObject({ status: 'succeeded', result: 42 })
    }
  })

  test('a user who has waited without a result gets the command as it is', async () => {
    const device = await newDevice()
    const made = expectStatus(201, await device.give({ name: 'a' }, '?wait=100ms')).json<Command>()
    expect(made.status).toBe('queued')
  })

  test('a user who may not wait as well has given no command', async () => {
    const device = await newCommanded(api, await newTenant(api))
    const key = { 'idempotency-key': newId() }
    let refused = 0
    // More than may wait, all for one command.
    const waiting = Array.from({ length: 220 }, async () => {
      const response = await device.give({ name: 'a' }, '?wait=60s', key)
      if (response.status === 429) refused++
      return response
    })
    await until(() => refused === 20, 'the others wait')
    expectStatus(429, await device.give({ name: 'b' }, '?wait=10s'))
    const { id } = expectStatus(201, await device.give({ name: 'a' }, '', key)).json<Command>()
    await device.cancel(id)
    const told = (await Promise.all(waiting)).filter(({ status }) => status === 201)
    expect(told).toHaveLength(200)
    for (const response of told) expect(response.json()).toMatchObject({ id, status: 'cancelled' })
    expect((await device.list()).total).toBe(1)
  }, 60_000)

  test('a device that waits gets a new command, given by another process too', async () => {
    const device = await newDevice()
    const remote = second.as(`Bearer ${tenant.user.accessToken}`)
    for (const give of [tenant.call, remote]) {
      const waiting = device.poll('?wait=30s')
      await untilWaiting()
      const { id } = expectStatus(201, await give('POST', device.path, { name: 'a' })).json<Command>()
      const taken = expectStatus(200, await waiting).json<{ commands: Command[] }>().commands
      expect(taken.map((one) => one.id)).toEqual([id])
      await device.answer(id, { status: 'succeeded' })
    }
  })

  test('with a wait, a command that was just taken is not returned again, and later it is', async () => {
    const device = await newDevice()
    const { id } = await device.given({ name: 'a' })
    expect(await device.taken('?wait=1s')).toHaveLength(1)
    expect(await device.taken('?wait=50ms')).toHaveLength(0)
    expect(await device.taken()).toHaveLength(1)
    await sql`UPDATE device_commands SET offered_at = now() - interval '31 seconds' WHERE id = ${id}`.execute(db())
    expect(await device.taken('?wait=1s')).toHaveLength(1)
  })

  test('a device has a bounded number of requests that wait', async () => {
    const device = await newDevice()
    const waiting = Array.from({ length: 4 }, () => device.poll('?wait=2s'))
    await untilWaiting()
    expectStatus(429, await device.poll('?wait=5s'))
    const { id } = await device.given({ name: 'a' })
    await device.answer(id, { status: 'succeeded' })
    await Promise.all(waiting)
  }, 30_000)
})

describe('an end', () => {
  const open = async (state: 'queued' | 'delivered'): Promise<{ device: Commanded; id: string }> => {
    const device = await newDevice()
    const { id } = await device.given({ name: 'a' })
    if (state === 'delivered') await device.taken()
    return { device, id }
  }

  test.each(['queued', 'delivered'] as const)('comes by itself at the time of a %s command', async (state) => {
    const { device, id } = await open(state)
    await passTime(id)
    const ended = await until(async () => {
      const command = await device.view(id)
      return command.status === 'expired' ? command : undefined
    }, 'the command has expired')
    expect(ended).toMatchObject({ status: 'expired', ended_at: expect.any(String) })
    expect((await operationsOf(id)).at(-1)).toBe('command.expire expired')
    expect(await device.taken()).toEqual([])
  })

  test('comes at the end of the timeout, which begins with the delivery', async () => {
    const device = await newDevice()
    const { id } = await device.given({ name: 'a', timeout: '1s' })
    const waiting = await device.given({ name: 'b', timeout: '1s' })
    await device.taken()
    await sql`UPDATE device_commands SET status = 'queued', delivered_at = NULL, due_at = expires_at WHERE id = ${waiting.id}`.execute(
      db(),
    )
    await until(async () => (await device.view(id)).status === 'timed_out', 'the command has timed out')
    expect((await device.view(waiting.id)).status).toBe('queued')
  })

  test('before the sweep: an answer after the time is late', async () => {
    const { device, id } = await open('delivered')
    await passTime(id)
    const answered = expectStatus(200, await device.answer(id, { status: 'succeeded', result: 1 }))
    expect(answered.json()).toEqual({ id, status: 'expired', late: true })
    const ended = await device.view(id)
    expect(ended).toMatchObject({ status: 'expired', late_answer: { status: 'succeeded' } })
    expect(ended).not.toHaveProperty('result')
    expect((await operationsOf(id)).slice(-2)).toEqual(['command.expire expired', 'command.late expired'])
  })

  test('two answers at once: one is recorded, and the other is late', async () => {
    for (let round = 0; round < 10; round++) {
      const { device, id } = await open('delivered')
      const answers = await Promise.all(
        (['succeeded', 'failed'] as const).map(async (status) =>
          (await device.answer(id, { status, result: status })).json<{ status: string; late: boolean }>(),
        ),
      )
      expect(answers.filter(({ late }) => late)).toHaveLength(1)
      const ended = await device.view(id)
      const winner = answers.find(({ late }) => !late)
      expect(ended).toMatchObject({ status: winner?.status, result: winner?.status })
      expect(ended.late_answer?.status).not.toBe(ended.status)
      expect(answers.every(({ status }) => status === ended.status)).toBe(true)
    }
  })

  test('the same answer again has no effect, and later ones are recorded once', async () => {
    const { device, id } = await open('delivered')
    const body = { status: 'succeeded', result: { b: 1, a: [2] } }
    for (const repeated of [body, body, { status: 'succeeded', result: { a: [2], b: 1 } }])
      expect((await device.answer(id, repeated)).json()).toEqual({ id, status: 'succeeded', late: false })
    expect(await device.view(id)).not.toHaveProperty('late_answer')
    for (const status of ['failed', 'rejected', 'failed'])
      expect((await device.answer(id, { status })).json()).toEqual({ id, status: 'succeeded', late: true })
    expect(await device.view(id)).toMatchObject({ status: 'succeeded', late_answer: { status: 'failed' } })
    expect((await operationsOf(id)).filter((operation) => operation.startsWith('command.late'))).toHaveLength(1)
  })

  test('a cancellation and an answer at once: one of them wins, and both callers learn which', async () => {
    const winners = new Set<string>()
    for (let round = 0; round < 10; round++) {
      const { device, id } = await open('delivered')
      const [cancelled, answered] = await Promise.all([
        device.cancel(id),
        device.answer(id, { status: 'succeeded', result: 1 }),
      ])
      const { status } = await device.view(id)
      winners.add(status)
      if (status === 'cancelled') {
        expectStatus(200, cancelled)
        expect(answered.json()).toEqual({ id, status: 'cancelled', late: true })
      } else {
        expect(status).toBe('succeeded')
        expectStatus(409, cancelled)
        expect(answered.json()).toEqual({ id, status: 'succeeded', late: false })
      }
    }
    expect([...winners].every((status) => status === 'cancelled' || status === 'succeeded')).toBe(true)
  })

  test('a cancelled command is not taken any more, and is cancelled once', async () => {
    const { device, id } = await open('queued')
    expect(expectStatus(200, await device.cancel(id)).json()).toMatchObject({ status: 'cancelled' })
    expectStatus(200, await device.cancel(id))
    expect(await device.taken()).toEqual([])
    expect((await operationsOf(id)).filter((operation) => operation.startsWith('command.cancel'))).toHaveLength(1)
    const other = await device.given({ name: 'a' })
    await device.answer(other.id, { status: 'failed' })
    expect((await device.cancel(other.id)).text).toContain('failed')
  })

  test('many at once are ended in steps by one process', async () => {
    const device = await newDevice()
    const { id } = await device.given({ name: 'a' })
    await sql`INSERT INTO device_commands (id, client_key, name, bytes, timeout_ms, expires_at, due_at)
      SELECT gen_random_uuid(), client_key, 'many', 0, 1000, now() - interval '1 minute', now() - interval '1 minute' FROM device_commands, generate_series(1, 1200)
       WHERE id = ${id}`.execute(db())
    await Promise.all([sweepOnce(api.api.identity.journal), sweepOnce(second.api.identity.journal)])
    await until(async () => {
      const { rows } = await sql<{
        total: number
      }>`SELECT count(*) AS total FROM device_commands WHERE name = 'many' AND ended_at IS NULL`.execute(db())
      return rows[0]?.total === 0
    }, 'all are ended')
    const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM journal
      WHERE operation = 'command.expire' AND attributes ->> 'name' = 'many'`.execute(db())
    expect(rows[0]?.total).toBe(1200)
  })
})

describe('others', () => {
  test('many devices that look at once get what is their own', async () => {
    const devices = [await newDevice(), await newDevice(), await newDevice()]
    const [one, two] = devices as [Commanded, Commanded, Commanded]
    const ids = [
      await one.given({ name: 'a' }),
      await one.given({ name: 'b', payload: 1 }),
      await two.given({ name: 'c' }),
    ].map(({ id }) => id)
    const ended = await two.given({ name: 'd' })
    await two.cancel(ended.id)
    const { rows } = await sql<{
      key: number
    }>`SELECT key FROM clients WHERE id = ANY (${devices.map(({ client }) => client.id)}::uuid[])
      ORDER BY key`.execute(db())
    const [first, second_, third] = rows.map(({ key }) => key) as [number, number, number]
    const open = new OpenCommands(db(), silentLogger)
    const [all, later, others, nothing] = await Promise.all([
      open.list(first, 0),
      open.newest(first).then(async (newest) => await open.list(first, newest - 1)),
      open.list(second_, 0),
      open.list(third, 0),
    ])
    expect(all.map(({ id }) => id)).toEqual(ids.slice(0, 2))
    expect(later).toMatchObject([{ id: ids[1], payload: 1, hasPayload: true, status: 'queued' }])
    expect(others.map(({ id }) => id)).toEqual(ids.slice(2))
    expect(nothing).toEqual([])
    expect(await open.list(first, all.at(-1)?.key ?? 0)).toEqual([])
  })

  test('a command of another client does not exist', async () => {
    const [device, neighbour] = [await newDevice(), await newDevice()]
    const foreign = await newTenant(api)
    const stranger = await newCommanded(api, foreign)
    const { id } = await device.given({ name: 'a' })
    const unknown = await device.answer(newId(), { status: 'succeeded' })
    expect(unknown.status).toBe(404)
    for (const other of [neighbour, stranger]) {
      const answered = await other.answer(id, { status: 'succeeded' })
      expect([answered.status, answered.text]).toEqual([404, unknown.text])
      expect(await other.taken()).toEqual([])
    }
    // The secret of a device of another domain, in this domain.
    expectStatus(401, await stranger.device('GET', `/c/${tenant.domainId}/commands`))
    expectStatus(
      401,
      await stranger.device('POST', `/c/${tenant.domainId}/commands/${id}/result`, { status: 'failed' }),
    )
    expectStatus(401, await api.anonymous('GET', `/c/${tenant.domainId}/commands`))
    expectStatus(403, await tenant.call('GET', `/c/${tenant.domainId}/commands`))
    for (const [method, path] of [
      ['GET', `${device.path}/${id}`],
      ['POST', `${device.path}/${id}/cancel`],
      ['GET', device.path],
    ] as const)
      expect([403, 404]).toContain((await foreign.call(method, path)).status)
    // A command of one client below the path of another.
    expectStatus(404, await tenant.call('GET', `${neighbour.path}/${id}`))
    expectStatus(404, await tenant.call('POST', `${neighbour.path}/${id}/cancel`))
    expect((await device.view(id)).status).toBe('queued')
  })

  test('what a device sends is validated', async () => {
    const device = await newDevice()
    const { id } = await device.given({ name: 'a' })
    for (const body of [
      {},
      { status: 'queued' },
      { status: 'timed_out' },
      { status: 5 },
      [],
      { status: 'failed', reason: 'x'.repeat(501) },
    ])
      expectStatus(400, await device.answer(id, body))
    expectStatus(404, await device.answer('no-id', { status: 'failed' }))
    expectStatus(400, await device.poll('?wait=61s'))
    const deep = `{"status":"failed","result":${'['.repeat(5_000)}${']'.repeat(5_000)}}`
    const path = `/c/${tenant.domainId}/commands/${id}/result`
    expectStatus(400, await device.device('POST', path, deep, { 'content-type': 'application/json' }))
    expect((await device.view(id)).status).toBe('queued')
  })

  test('a disabled device takes nothing, and gets what waits when it is enabled', async () => {
    const device = await newDevice()
    await device.given({ name: 'a' })
    await tenant.call('POST', `/${tenant.domainId}/clients/${device.client.id}/disable`)
    expectStatus(401, await device.poll())
    await device.given({ name: 'b' })
    await tenant.call('POST', `/${tenant.domainId}/clients/${device.client.id}/enable`)
    expect((await device.taken()).map(({ name }) => name)).toEqual(['a', 'b'])
  })
})
