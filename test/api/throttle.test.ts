// contract section 12 (429 with Retry-After): limits that nobody can turn against the owner
import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { TestApi } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { RedisServer, hasRedisServer } from '../core/redis-server.ts'
import { createTestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'

const api = useWorld(() => startTestApi())

/** Failures from one address that are looked at before the limit, see RULES of the throttle. */
const PAIR_BURST = 10
const ACCOUNT_BURST = 50
const KNOWN_BURST = 20
/** Two hundred hashes, two at once, on a machine that has other work. */
const FLOOD_DEADLINE_MS = 240_000

async function logIn(at: TestApi, identity: string, secret: string, remoteAddress: string) {
  const response = await at.app.inject({
    method: 'POST',
    url: '/users/tokens/issue',
    remoteAddress,
    headers: { 'content-type': 'application/json' },
    payload: JSON.stringify({ identity, secret }),
  })
  return { status: response.statusCode, retryAfter: response.headers['retry-after'], text: response.body }
}

/** Each test has addresses of its own: the limits of an address are the process's. */
let nextNetwork = 0
function newAddresses(): (host: number) => string {
  const network = ++nextNetwork
  return (host) => `10.${network}.${Math.floor(host / 250)}.${host % 250}`
}

test('guesses from one address are answered with 429 and Retry-After, for the right password and an unknown user alike', async () => {
  const [user, at] = [await api.newUser(), newAddresses()]
  for (const identity of [user.username, `nobody-${newId()}`]) {
    for (let attempt = 0; attempt < PAIR_BURST; attempt++)
      expect((await logIn(api, identity, 'wrong password', at(1))).status, `${attempt}`).toBe(401)
    const refused = await logIn(api, identity, user.secret, at(1))
    expect(refused.status).toBe(429)
    expect(Number(refused.retryAfter)).toBeGreaterThanOrEqual(1)
    expect(JSON.parse(refused.text)).toEqual({
      error: 'rate_limited',
      message: 'too many failed logins: try again later',
    })
  }
})

test('username and email are one account', async () => {
  const [user, at] = [await api.newUser(), newAddresses()]
  const names = [user.username, `${user.username}@example.com`, user.username.toUpperCase()]
  for (let attempt = 0; attempt < PAIR_BURST; attempt++)
    expect((await logIn(api, names[attempt % names.length] ?? '', 'wrong password', at(1))).status).toBe(401)
  for (const name of names) expect((await logIn(api, name, 'wrong password', at(1))).status).toBe(429)
})

test('right passwords are never counted', async () => {
  const [user, at] = [await api.newUser(), newAddresses()]
  for (let login = 0; login < PAIR_BURST + 5; login++)
    expect((await logIn(api, user.username, user.secret, at(1))).status).toBe(201)
})

test('concurrent right passwords do not throttle each other', async () => {
  const [user, at] = [await api.newUser(), newAddresses()]
  const answers = await Promise.all(
    Array.from({ length: PAIR_BURST + 5 }, () => logIn(api, user.username, user.secret, at(1))),
  )
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]))
})

test(
  'an attack from many addresses does not lock owners out at addresses that they use, nor after a restart',
  async () => {
    await using database = await createTestDatabase()
    await using one = await startTestApi({ database })
    const [user, at] = [await one.newUser(), newAddresses()]
    const home = at(0)
    expect((await logIn(one, user.username, user.secret, home)).status).toBe(201)
    const guess = (node: TestApi, hosts: number) =>
      Promise.all(
        Array.from({ length: hosts }, (_, host) => logIn(node, user.username, 'wrong password', at(host + 1))),
      )
    // Some come back while the others are looked at, so a few more than the limit are sent.
    const statuses = (await guess(one, ACCOUNT_BURST + 20)).map((answer) => answer.status)
    expect(statuses.filter((status) => status === 401).length).toBeGreaterThanOrEqual(ACCOUNT_BURST)
    expect(statuses).toContain(429)
    expect((await logIn(one, user.username, user.secret, home)).status).toBe(201)
    await using other = await startTestApi({ database })
    const under = guess(other, ACCOUNT_BURST)
    expect((await logIn(other, user.username, user.secret, home)).status).toBe(201)
    await under
  },
  FLOOD_DEADLINE_MS,
)

test('wrong passwords of the owner only delay the owner', async () => {
  const [user, at] = [await api.newUser(), newAddresses()]
  expect((await logIn(api, user.username, user.secret, at(1))).status).toBe(201)
  for (let attempt = 0; attempt < KNOWN_BURST + 1; attempt++)
    expect((await logIn(api, user.username, 'wrong password', at(1))).status).toBe(401)
  expect((await logIn(api, user.username, user.secret, at(1))).status).toBe(201)
})

test(
  'one address cannot try the passwords of many accounts, and neighbouring addresses are not affected',
  async () => {
    const at = newAddresses()
    const answers = await Promise.all(
      Array.from({ length: 130 }, () => logIn(api, `nobody-${newId()}`, 'wrong password', at(1))),
    )
    expect(answers.filter((answer) => answer.status === 401).length).toBeGreaterThanOrEqual(100)
    expect(answers.map((answer) => answer.status)).toContain(429)
    expect((await logIn(api, `nobody-${newId()}`, 'wrong password', at(2))).status).toBe(401)
  },
  FLOOD_DEADLINE_MS,
)

test('IPv6 addresses are counted by network', async () => {
  const user = await api.newUser()
  for (let attempt = 0; attempt < PAIR_BURST; attempt++)
    expect((await logIn(api, user.username, 'wrong password', `2001:db8:9:9::${attempt}`)).status).toBe(401)
  expect((await logIn(api, user.username, 'wrong password', '2001:db8:9:9:ffff::1')).status).toBe(429)
  expect((await logIn(api, user.username, 'wrong password', '2001:db8:9:a::1')).status).toBe(401)
})

test('an attempt that is refused unverified has no journal record, and the journal contains no password', async () => {
  const [user, at] = [await api.newUser(), newAddresses()]
  for (let attempt = 0; attempt < PAIR_BURST + 20; attempt++)
    await logIn(api, user.username, 'a-wrong-password-of-mine', at(1))
  const { rows } = await sql<{ text: string }>`SELECT to_jsonb(j)::text AS text FROM journal j
     WHERE operation = 'user.refused_token' AND attributes ->> 'id' = ${user.id}`.execute(api.database.db)
  expect(rows).toHaveLength(PAIR_BURST)
  for (const { text } of rows) expect(text).not.toContain('a-wrong-password-of-mine')
})

test(
  'a flood of logins starves neither the process nor users who logged in before',
  async () => {
    const [user, at] = [await api.newUser(), newAddresses()]
    expect((await logIn(api, user.username, user.secret, at(0))).status).toBe(201)
    const flood = Array.from({ length: 320 }, (_, host) =>
      logIn(api, `nobody-${newId()}`, 'wrong password', at(host + 1)),
    )
    let finished = 0
    for (const attempt of flood) void attempt.then(() => (finished += 1))
    const health = await api.anonymous('GET', '/health')
    expect(health.status).toBe(200)
    expect((await logIn(api, user.username, user.secret, at(0))).status).toBe(201)
    expect(finished).toBeLessThan(flood.length)
    const statuses = (await Promise.all(flood)).map((answer) => answer.status)
    expect(new Set(statuses)).toEqual(new Set([401, 429]))
  },
  FLOOD_DEADLINE_MS,
)

test.runIf(hasRedisServer())(
  'nodes that share a Redis count together, and each alone while it is unavailable',
  async () => {
    await using database = await createTestDatabase()
    await using redis = await RedisServer.start()
    const options = { database, environment: { SKEIN_REDIS_URL: redis.url } }
    await using first = await startTestApi(options)
    await using second = await startTestApi(options)
    // A Redis that does not answer at once is not waited for, and a node that counts alone looks at more: then once more.
    await until(
      async () => {
        const [user, at] = [await first.newUser(), newAddresses()]
        const statuses: number[] = []
        for (let attempt = 0; attempt < PAIR_BURST + 2; attempt++) {
          const node = attempt % 2 === 0 ? first : second
          statuses.push((await logIn(node, user.username, 'wrong password', at(1))).status)
        }
        expect(new Set(statuses.slice(0, PAIR_BURST))).toEqual(new Set([401]))
        return statuses.slice(PAIR_BURST).join() === '429,429'
      },
      'they count together',
      FLOOD_DEADLINE_MS / 2,
    )
    const at = newAddresses()
    await redis.kill()
    const other = await second.newUser()
    for (let attempt = 0; attempt < PAIR_BURST; attempt++)
      expect((await logIn(second, other.username, 'wrong password', at(2))).status).toBe(401)
    expect((await logIn(second, other.username, 'wrong password', at(2))).status).toBe(429)
  },
  FLOOD_DEADLINE_MS,
)
