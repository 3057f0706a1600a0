/**
 * Contacts that do not answer delay only the user who chose them: concurrent deliveries are shared by owner and by host, a slot
 * is used again as soon as it is free, and a host that was silent is not called for a while (decision 57).
 */
import { createServer as createHttpServer } from 'node:http'
import { createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { newId } from '#core/ids.ts'
import { newTenant } from '../api/support.ts'
import type { Tenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi } from '../harness/api.ts'
import { until } from '../harness/until.ts'

/** What the sender says of itself: api/provisioning/notifications/sender.ts. */
const MAX_IN_FLIGHT = 64
const MAX_OF_OWNER = 8
const MAX_TO_HOST = 16

/** What hangs is ended by the test; below the lease of what was claimed. */
const HANGING_MS = 110_000

const SILENT_HOSTS = Array.from(
  { length: 300 },
  (_, place) => `127.0.${1 + Math.floor(place / 200)}.${1 + (place % 200)}`,
)

let api: TestApi
/** Takes connections and never answers; `open` are those that nobody has ended. */
const open = new Set<Socket>()
let accepted = 0
/** Whether it breaks every connection at once. */
let isBreaking = false
const silent = createServer((socket) => {
  accepted += 1
  open.add(socket)
  socket.on('error', () => undefined)
  socket.on('close', () => open.delete(socket))
  if (isBreaking) socket.destroy()
})
const told: string[] = []
const answering = createHttpServer((request, response) => {
  told.push(request.url ?? '')
  request.resume()
  response.end()
})
let silentPort = 0
let answeringBase = ''

beforeEach(async () => {
  open.clear()
  accepted = 0
  isBreaking = false
  await Promise.all([
    new Promise<void>((resolve) => void silent.listen(0, '0.0.0.0', resolve)),
    new Promise<void>((resolve) => void answering.listen(0, '127.0.0.1', resolve)),
  ])
  silentPort = (silent.address() as AddressInfo).port
  const { port } = answering.address() as AddressInfo
  answeringBase = `http://127.0.0.1:${port}`
})
afterEach(async () => {
  await api[Symbol.asyncDispose]()
  for (const socket of open) socket.destroy()
  answering.closeAllConnections()
  await Promise.all([
    new Promise((resolve) => void silent.close(resolve)),
    new Promise((resolve) => void answering.close(resolve)),
  ])
})

async function start(retrySeconds?: readonly number[]): Promise<void> {
  const hosts = [...SILENT_HOSTS.map((host) => `${host}:${silentPort}`), new URL(answeringBase).host]
  api = await startTestApi({
    environment: { SKEIN_WEBHOOK_HOSTS: hosts.join(',') },
    notificationTimes: {
      intervalMs: 20,
      postDeadlineMs: HANGING_MS,
      ...(retrySeconds === undefined ? {} : { retrySeconds }),
    },
  })
}

/** A tenant with a channel whose messages these contacts receive; returns a function that sends one. */
async function tenantWith(contacts: readonly string[]): Promise<{ tenant: Tenant; send: () => Promise<void> }> {
  const tenant = await newTenant(api)
  const [client, channel] = [await tenant.newClient(), await tenant.newChannel()]
  await tenant.connect(client.id, channel.id)
  for (const contact of contacts) {
    const made = await tenant.call('POST', '/subscriptions', { topic: channel.id, contact })
    expect(made.status, made.text).toBe(201)
  }
  return {
    tenant,
    async send() {
      const answer = await api.as(`Client ${client.credentials.secret}`)(
        'POST',
        `/m/${tenant.domainId}/c/${channel.id}`,
        JSON.stringify([{ n: 'v', v: 1 }]),
        { 'content-type': 'application/senml+json' },
      )
      expect(answer.status).toBe(202)
    },
  }
}

const silentContact = (host: string) => `http://${host}:${silentPort}/${newId()}`

describe('a contact that does not respond', () => {
  it('at 300 addresses of one tenant does not delay another one, whose notifications are sent meanwhile', async () => {
    await start()
    const hostile = await tenantWith(SILENT_HOSTS.map(silentContact))
    const path = `/${newId()}`
    const other = await tenantWith([`${answeringBase}${path}`])
    await hostile.send()
    await until(() => open.size === MAX_OF_OWNER, 'the share of the owner is on its way')
    for (let message = 1; message <= 3; message++) {
      await other.send()
      await until(() => told.filter((one) => one === path).length === message, `message ${message} of the other tenant`)
    }
    // Not one of them had ended by then: nothing was waited for.
    expect([open.size, accepted]).toEqual([MAX_OF_OWNER, MAX_OF_OWNER])
  })

  it('of many tenants together leaves the next free slot to a tenant without one', async () => {
    await start()
    const hostile = await Promise.all(
      Array.from({ length: MAX_IN_FLIGHT / MAX_OF_OWNER }, (_, place) =>
        tenantWith(SILENT_HOSTS.slice(place * 10, place * 10 + 10).map(silentContact)),
      ),
    )
    const path = `/${newId()}`
    const other = await tenantWith([`${answeringBase}${path}`])
    for (const { send } of hostile) await send()
    await until(() => open.size === MAX_IN_FLIGHT, 'every place is taken')
    await other.send()
    const waiting = async () => {
      const { rows } = await api.database.pool.query<{ count: number }>(
        `SELECT count(*)::integer AS count FROM notification_deliveries w JOIN notification_subscriptions n ON n.key = w.subscription_key
          WHERE n.contact = $1`,
        [`${answeringBase}${path}`],
      )
      return rows[0]?.count === 1
    }
    await until(waiting, 'the message of the other tenant waits')
    expect(told).not.toContain(path)
    const before = accepted
    const [first] = open
    first?.destroy()
    await until(() => told.includes(path), 'the other tenant is told')
    // The free slot was used for this tenant, and after the delivery for another one again.
    expect(accepted - before).toBeLessThanOrEqual(1)
  })

  it('and is not due yet hides no due one: every owner is served, with any number of waiting owners', async () => {
    await start()
    const path = `/${newId()}`
    await tenantWith([])
    const { pool } = api.database
    // More owners than one claim looks at, each with something for later.
    await pool.query(`INSERT INTO users (id, email, secret_hash)
      SELECT gen_random_uuid(), 'waiting-' || number || '@example.com', 'x' FROM generate_series(1, 2100) number`)
    await pool.query(`INSERT INTO notification_subscriptions (id, user_key, channel_key, topic, filter, contact)
      SELECT gen_random_uuid(), u.key, (SELECT min(key) FROM channels), 't', '', 'https://later.example.com/'
        FROM users u WHERE u.email LIKE 'waiting-%'`)
    await pool.query(`INSERT INTO notification_deliveries (subscription_key, payload, next_attempt_at)
      SELECT key, '{}', now() + interval '1 day' FROM notification_subscriptions`)
    const last = await tenantWith([`${answeringBase}${path}`])
    await last.send()
    await until(() => told.includes(path), 'the owner who came last is told')
  })

  it('at one host uses a share of it: other senders to the same host have the rest', async () => {
    await start()
    const [host = ''] = SILENT_HOSTS
    const hostile = await tenantWith(Array.from({ length: 20 }, () => silentContact(host)))
    await hostile.send()
    await until(() => open.size === MAX_OF_OWNER, 'the share of one owner')
    const others = await Promise.all(
      Array.from({ length: 3 }, () => tenantWith(Array.from({ length: 8 }, () => silentContact(host)))),
    )
    for (const { send } of others) await send()
    await until(() => open.size === MAX_TO_HOST, 'the share of the host')
    const path = `/${newId()}`
    const beside = await tenantWith([`${answeringBase}${path}`])
    await beside.send()
    await until(() => told.includes(path), 'another host is told')
    expect([open.size, accepted]).toEqual([MAX_TO_HOST, MAX_TO_HOST])
  })
})

describe('a host that was silent', () => {
  it('is not tried for each waiting message: they fail together, and become dead letters in time', async () => {
    await start([0.5, 0.5])
    isBreaking = true
    const [host = ''] = SILENT_HOSTS
    const contacts = Array.from({ length: 30 }, () => silentContact(host))
    const { tenant, send } = await tenantWith(contacts)
    await send()
    const letters = async () => {
      const { rows } = await api.database.pool.query<{ attempts: number }>(
        `SELECT w.attempts FROM notification_deliveries w JOIN notification_subscriptions n ON n.key = w.subscription_key
           JOIN users u ON u.key = n.user_key WHERE u.id = $1 AND w.next_attempt_at IS NULL`,
        [tenant.user.id],
      )
      return rows.length === contacts.length ? rows.map(({ attempts }) => attempts) : undefined
    }
    const attempts = await until(letters, 'all were given up')
    expect(new Set(attempts)).toEqual(new Set([3]))
    // Thirty messages with three attempts each were ninety connections.
    expect(accepted).toBeLessThan(90 / 2)
  })

  it('of one owner does not affect another one with the same host', async () => {
    await start([600])
    isBreaking = true
    const [host = ''] = SILENT_HOSTS
    const first = await tenantWith([silentContact(host)])
    await first.send()
    await until(() => accepted === 1, 'the first owner has tried')
    const second = await tenantWith([silentContact(host)])
    await second.send()
    await until(() => accepted === 2, 'the second one tries for himself')
  })
})
