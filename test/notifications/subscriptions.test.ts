/** Subscriptions to notifications: who receives notifications about which messages, by mail and signed webhook (contract section 13, decision 57). */
import { createHmac } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { deferDeliveries } from '../../api/provisioning/notifications/repository.ts'
import type { DueDelivery } from '../../api/provisioning/notifications/repository.ts'
import { readMails } from '../api/mailbox.ts'
import { grantRole, newTenant, revokeRoles, tenantOf } from '../api/support.ts'
import type { Channel, Client, Tenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi } from '../harness/api.ts'
import { beginOlderTransaction } from '../harness/older-transaction.ts'
import { until } from '../harness/until.ts'

type Post = { path: string; body: string; signature: string }
type Subscription = {
  id: string
  owner_id: string
  topic: string
  contact: string
  status: string
  signing_secret?: string
  pending: number
  missed: number
  behind_since?: string
  last_error?: { at: string; reason: string; count: number }
}

let api: TestApi
let tenant: Tenant
let client: Client
let channel: Channel
let server: Server
let base: string
const dataDir = mkdtempSync(join(tmpdir(), 'skein-notify-'))
const posts: Post[] = []
/** Many deliveries are sent before, on processors that other tests take. */
const BUSY_MS = 90_000
/** What the contact answers, by path; 200 else. */
const answers = new Map<string, number[]>()

beforeAll(async () => {
  server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => void chunks.push(chunk))
    request.on('end', () => {
      const path = request.url ?? ''
      posts.push({
        path,
        body: Buffer.concat(chunks).toString(),
        signature: String(request.headers['x-skein-signature']),
      })
      response.statusCode = answers.get(path)?.shift() ?? 200
      response.end('ignored')
    })
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  const { port } = server.address() as AddressInfo
  base = `http://127.0.0.1:${port}`
  api = await startTestApi({
    environment: { SKEIN_DATA_DIR: dataDir, SKEIN_WEBHOOK_HOSTS: `127.0.0.1:${port}` },
    notificationTimes: { retrySeconds: [0.05, 0.05], intervalMs: 20, quotaSeconds: 0.05, rightSeconds: 0.2 },
  })
  tenant = await newTenant(api)
  client = await tenant.newClient()
  channel = await tenant.newChannel()
  await tenant.connect(client.id, channel.id)
})
afterAll(async () => {
  await api[Symbol.asyncDispose]()
  server.close()
  rmSync(dataDir, { recursive: true })
})

const newContact = () => `${base}/${newId()}`
const pathOf = (contact: string) => new URL(contact).pathname
const postsTo = (contact: string) => posts.filter(({ path }) => path === pathOf(contact))

async function subscribe(topic: string, contact: string, by = tenant): Promise<Subscription> {
  const created = await by.call('POST', '/subscriptions', { topic, contact })
  expect(created.status, created.text).toBe(201)
  expect(created.text).toBe('')
  const location = String(created.headers['location'])
  expect(location).toMatch(/^\/subscriptions\/[0-9a-f-]{36}$/)
  return (await by.call('GET', location)).json<Subscription>()
}

const viewed = async (id: string) => (await tenant.call('GET', `/subscriptions/${id}`)).json<Subscription>()

async function send(value: number | string, subtopic = ''): Promise<void> {
  const isText = typeof value === 'string'
  const answer = await api.as(`Client ${client.credentials.secret}`)(
    'POST',
    `/m/${tenant.domainId}/c/${channel.id}${subtopic}`,
    isText ? value : JSON.stringify([{ n: 'voltage', v: value }]),
    { 'content-type': isText ? 'text/plain' : 'application/senml+json' },
  )
  expect(answer.status).toBe(202)
}

describe('a subscription', () => {
  it('is created with 201 and its Location, viewed by its owner only, and deleted', async () => {
    const contact = newContact()
    const made = await subscribe(channel.id, contact)
    expect(made).toMatchObject({ owner_id: tenant.user.id, topic: channel.id, contact, pending: 0, missed: 0 })
    const other = await newTenant(api)
    expect((await other.call('GET', `/subscriptions/${made.id}`)).status).toBe(404)
    expect((await other.call('DELETE', `/subscriptions/${made.id}`)).status).toBe(404)
    expect((await tenant.call('DELETE', `/subscriptions/${made.id}`)).status).toBe(204)
    expect((await tenant.call('GET', `/subscriptions/${made.id}`)).status).toBe(404)
  })

  it('gets no message that was acknowledged before it was made, however late it is read', async () => {
    const contact = newContact()
    {
      await using _older = await beginOlderTransaction(api.database)
      await send(1, '/before')
      await subscribe(`m/${tenant.domainId}/c/${channel.id}/#`, contact)
      await send(2, '/after')
    }
    await until(() => postsTo(contact).length > 0, 'a notification')
    expect(postsTo(contact).map(({ body }) => (JSON.parse(body) as { subtopic: string }).subtopic)).toEqual(['after'])
  })

  it('of the same topic and contact again is 409', async () => {
    const contact = newContact()
    await subscribe(channel.id, contact)
    expect((await tenant.call('POST', '/subscriptions', { topic: channel.id, contact })).status).toBe(409)
  })

  it.each([
    ['no topic', { topic: undefined }, 400],
    ['no contact', { contact: undefined }, 400],
    ['a contact that is none', { contact: 'nobody' }, 400],
    ['plain HTTP', { contact: 'http://example.com/' }, 400],
    ['a private address', { contact: 'https://10.0.0.1/' }, 400],
    ['loopback', { contact: 'https://localhost/' }, 400],
    ['a mapped address', { contact: 'https://[::ffff:127.0.0.1]/' }, 400],
    ['a decimal address', { contact: 'https://2130706433/' }, 400],
    ['user and password', { contact: 'https://a:b@example.com/' }, 400],
    ['a wildcard inside an element', { topic: '11111111-1111-4111-8111-111111111111.a*b' }, 400],
    ['an unknown channel', { topic: newId() }, 404],
  ])('with %s is refused', async (_what, fields, status) => {
    const body = { topic: channel.id, contact: 'jane@example.com', ...fields }
    expect((await tenant.call('POST', '/subscriptions', body)).status).toBe(status)
  })

  it('requires subscribe on the channel: a foreign channel is like an unknown one', async () => {
    const other = await newTenant(api)
    const body = { topic: channel.id, contact: newContact() }
    expect((await other.call('POST', '/subscriptions', body)).status).toBe(404)
    const scoped = { ...body, topic: `m/${tenant.domainId}/c/${channel.id}` }
    expect((await other.call('POST', '/subscriptions', scoped)).status).toBe(403)
    expect((await api.anonymous('POST', '/subscriptions', body)).status).toBe(401)
  })

  it('is listed by topic and contact; 404 when a filter finds none, -1 is no limit', async () => {
    const other = await newTenant(api)
    const own = await other.newChannel()
    expect((await other.call('GET', '/subscriptions')).json()).toMatchObject({
      total: 0,
      offset: 0,
      limit: 20,
      subscriptions: [],
    })
    const contacts = Array.from({ length: 22 }, newContact)
    for (const contact of contacts) await subscribe(own.id, contact, other)
    const list = async (query: string) => await other.call('GET', `/subscriptions?${query}`)
    expect((await list('')).json<{ subscriptions: unknown[] }>().subscriptions).toHaveLength(20)
    expect((await list('limit=-1')).json<{ subscriptions: unknown[] }>().subscriptions).toHaveLength(22)
    expect((await list(`contact=${contacts[3]}`)).json()).toMatchObject({
      total: 1,
      subscriptions: [{ contact: contacts[3] }],
    })
    expect((await list(`topic=${own.id}&offset=21`)).json()).toMatchObject({
      total: 22,
      subscriptions: [{ contact: contacts[21] }],
    })
    expect((await list('topic=none')).status).toBe(404)
    expect((await list('limit=-2')).status).toBe(400)
  })
})

describe('a token that is bound to a domain (decision 69)', () => {
  const boundTo = async (domainId: string) => {
    const issued = await api.anonymous('POST', '/users/tokens/issue', {
      identity: tenant.user.username,
      secret: tenant.user.secret,
      domain_id: domainId,
    })
    expect(issued.status, issued.text).toBe(201)
    return api.as(`Bearer ${issued.json<{ access_token: string }>().access_token}`)
  }

  it('subscribes to channels of that domain, and shows and ends those subscriptions only', async () => {
    const second = await tenant.call('POST', '/domains', { name: 'second' })
    const other = tenantOf(tenant.user, second.json<{ id: string }>().id)
    const elsewhere = await other.newChannel()
    const call = await boundTo(tenant.domainId)
    const contact = newContact()
    const made = await call('POST', '/subscriptions', { topic: `channels.${channel.id}.bound`, contact })
    expect(made.status, made.text).toBe(201)
    const own = String(made.headers['location'])
    const foreign = await subscribe(elsewhere.id, contact, other)
    expect((await call('POST', '/subscriptions', { topic: elsewhere.id, contact: newContact() })).status).toBe(404)
    expect((await call('GET', `/subscriptions?contact=${encodeURIComponent(contact)}`)).json()).toMatchObject({
      total: 1,
      subscriptions: [{ topic: `channels.${channel.id}.bound` }],
    })
    for (const method of ['GET', 'DELETE']) {
      expect((await call(method, `/subscriptions/${foreign.id}`)).status).toBe(404)
    }
    expect((await call('GET', `/subscriptions/${foreign.id}/dead-letters`)).status).toBe(404)
    await send(7, '/bound')
    await until(() => postsTo(contact).length === 1, 'the topic with a leading `channels.` is that channel')
    expect((await call('DELETE', own)).status).toBe(204)
    expect((await tenant.call('GET', `/subscriptions/${foreign.id}`)).status).toBe(200)
  })
})

describe('a post', () => {
  it('is sent for each later message, signed', async () => {
    const contact = newContact()
    const { id, signing_secret: secret } = await subscribe(`m/${tenant.domainId}/c/${channel.id}`, contact)
    await send(7)
    const [post] = await until(() => (postsTo(contact).length > 0 ? postsTo(contact) : undefined), 'the post')
    const { body, signature } = post as Post
    const [, at, mac] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(signature) ?? []
    expect(
      createHmac('sha256', secret ?? '')
        .update(`${at}.${body}`)
        .digest('hex'),
    ).toBe(mac)
    const told = JSON.parse(body) as Record<string, string>
    expect(told).toMatchObject({
      subscription_id: id,
      channel: channel.id,
      publisher: client.id,
      protocol: 'http',
      subtopic: '',
    })
    expect(JSON.parse(told['payload'] ?? '')).toMatchObject([{ n: 'voltage', v: 7 }])
    await until(
      async () => (await tenant.call('GET', `/subscriptions/${id}`)).json<Subscription>().pending === 0,
      'nothing waits',
    )
  })

  it('covers the subtopics of its filter, in either form', async () => {
    const [exact, one, all] = [newContact(), newContact(), newContact()]
    await subscribe(`${channel.id}.room.1`, exact)
    await subscribe(`channels/${channel.id}/messages/room/+`, one)
    await subscribe(`m/${tenant.domainId}/c/${channel.id}/#`, all)
    for (const subtopic of ['', '/room', '/room/1', '/room/2', '/room/2/x']) await send(subtopic, subtopic)
    const told = (contact: string) =>
      postsTo(contact)
        .map(({ body }) => (JSON.parse(body) as { subtopic: string }).subtopic)
        .toSorted((a, b) => a.localeCompare(b))
    await until(() => told(all).length === 5, 'all five')
    expect(told(exact)).toEqual(['room.1'])
    expect(told(one)).toEqual(['room.1', 'room.2'])
    expect(told(all)).toEqual(['', 'room', 'room.1', 'room.2', 'room.2.x'])
  })

  it('is repeated until it is accepted', async () => {
    const contact = newContact()
    answers.set(pathOf(contact), [500, 302])
    const { id } = await subscribe(channel.id, contact)
    await send(1)
    await until(() => postsTo(contact).length === 3, 'three posts')
    expect(new Set(postsTo(contact).map(({ body }) => body)).size).toBe(1)
    await until(async () => (await viewed(id)).last_error === undefined, 'the delivery ends the failures')
  })

  it('that is never accepted becomes a dead letter, at once for 410', async () => {
    for (const [statuses, attempts] of [
      [[500, 500, 500], 3],
      [[410], 1],
    ] as const) {
      const contact = newContact()
      answers.set(pathOf(contact), [...statuses])
      const { id } = await subscribe(channel.id, contact)
      await send(2)
      const letters = await until(async () => {
        const answer = await tenant.call('GET', `/subscriptions/${id}/dead-letters`)
        const page = answer.json<{
          total: number
          dead_letters: {
            id: string
            attempts: number
            error: string
            message: object
            created_at: string
            at: string
          }[]
        }>()
        return page.total > 0 ? page : undefined
      }, 'a dead letter')
      expect(letters.dead_letters[0]).toMatchObject({
        attempts,
        error: expect.stringContaining('responded with status'),
        message: { channel: channel.id },
      })
      expect(postsTo(contact)).toHaveLength(attempts)
      expect((await viewed(id)).last_error).toMatchObject({
        count: attempts,
        reason: expect.stringContaining('responded with status'),
      })
      // The contact answers 200 by now.
      const change = async (what: string, selection: object) =>
        await tenant.call('POST', `/subscriptions/${id}/dead-letters/${what}`, selection)
      expect((await change('retry', {})).status).toBe(400)
      // What was given up later than the caller has seen is left alone, also if its message came earlier.
      const [{ created_at: createdAt, at } = { created_at: '', at: '' }] = letters.dead_letters
      expect(at > createdAt).toBe(true)
      expect((await change('discard', { until: createdAt })).json()).toEqual({ count: 0 })
      expect((await change('retry', { ids: [letters.dead_letters[0]?.id] })).json()).toEqual({ count: 1 })
      await until(() => postsTo(contact).length === attempts + 1, 'it is delivered after all')
      await until(async () => (await viewed(id)).last_error === undefined, 'the failure is over')
      expect((await change('discard', { all: true })).json()).toEqual({ count: 0 })
      await tenant.call('DELETE', `/subscriptions/${id}`)
    }
  })

  it('waits while its subscriber cannot read the channel', async () => {
    const reader = await api.newUser()
    const on = { type: 'channel' as const, domainId: tenant.domainId, id: channel.id }
    const domain = { type: 'domain' as const, domainId: tenant.domainId, id: tenant.domainId }
    await grantRole(api, reader.id, domain, ['read'])
    await grantRole(api, reader.id, on, ['read', 'subscribe'])
    const [gone, kept] = [newContact(), newContact()]
    const theirs = await subscribe(channel.id, gone, { ...tenant, call: reader.call, user: reader })
    await subscribe(channel.id, kept)
    await send(3)
    await until(() => postsTo(gone).length === 1 && postsTo(kept).length === 1, 'both are told')
    await revokeRoles(api, reader.id, on)
    await send(4)
    await until(() => postsTo(kept).length === 2, 'the other one is told')
    // It says so, counts, and is in the journal of the domain once.
    await send(5)
    const shown = async () => (await reader.call('GET', `/subscriptions/${theirs.id}`)).json<Subscription>()
    await until(async () => {
      const { last_error: error, pending } = await shown()
      return (error?.count ?? 0) >= 3 && pending === 2
    }, 'two messages wait, and the right was asked for again')
    expect(postsTo(gone)).toHaveLength(1)
    const { subscriptions } = (await reader.call('GET', '/subscriptions')).json<{ subscriptions: Subscription[] }>()
    expect(subscriptions[0]?.last_error?.reason).toContain('may not subscribe')
    const journal = await tenant.call('GET', `/${tenant.domainId}/journal/domain/${tenant.domainId}?limit=100`)
    const operations = journal.json<{ journals: { operation: string }[] }>().journals.map(({ operation }) => operation)
    expect(operations.filter((operation) => operation === 'subscription.refuse')).toHaveLength(1)
    expect((await reader.call('GET', `/journal/user/${reader.id}?limit=100`)).text).toContain('subscription.refuse')
    await grantRole(api, reader.id, on, ['read', 'subscribe'])
    await send(6)
    await until(() => postsTo(gone).length === 4, 'it is told all of them')
    const values = postsTo(gone).map(
      ({ body }) => JSON.parse((JSON.parse(body) as { payload: string }).payload) as unknown,
    )
    expect(values).toMatchObject([3, 4, 5, 6].map((v) => [{ v }]))
    await until(async () => (await shown()).last_error === undefined, 'no refusal is left')
    // What has waited for a week is a dead letter.
    await revokeRoles(api, reader.id, on)
    await send(7)
    await until(async () => (await shown()).pending === 1, 'it waits')
    await api.database.pool.query(
      `UPDATE notification_deliveries w SET created_at = now() - interval '8 days' FROM notification_subscriptions n
        WHERE n.key = w.subscription_key AND n.contact = $1`,
      [gone],
    )
    const letters = await until(async () => {
      const answer = await reader.call('GET', `/subscriptions/${theirs.id}/dead-letters`)
      const page = answer.json<{ total: number; dead_letters: { error: string; attempts: number }[] }>()
      return page.total === 1 ? page.dead_letters : undefined
    }, 'a dead letter')
    expect(letters).toMatchObject([{ attempts: 0, error: expect.stringContaining('may not subscribe') }])
  })
})

describe('a mail', () => {
  it('reports the message', async () => {
    const { id, status } = await subscribe(channel.id, 'jane@example.com')
    expect(status).toBe('pending')
    const asking = await until(() => readMails(dataDir, 'jane@example.com')[0], 'the link')
    const link = new URL(/^https?:\/\/\S+(?=\r$)/m.exec(asking.text)?.[0] ?? '')
    expect((await api.anonymous('GET', `${link.pathname}${link.search}`)).status).toBe(200)
    expect((await tenant.call('GET', `/subscriptions/${id}`)).json()).toMatchObject({ status: 'active' })
    await send('hello there')
    const mail = await until(
      () => readMails(dataDir, 'jane@example.com').find(({ text }) => text.includes('hello there')),
      'the mail',
    )
    expect(mail.subject).toBe(`Message on ${channel.id}`)
  })
})

describe('waiting notifications', () => {
  it('are limited for each contact: the rest is sent later, and none is lost', { timeout: 2 * BUSY_MS }, async () => {
    const contact = newContact()
    const { id } = await subscribe(channel.id, contact)
    await Promise.all(Array.from({ length: 160 }, (_, index) => send(index)))
    await until(() => postsTo(contact).length >= 100, 'the burst')
    const view = async () => (await tenant.call('GET', `/subscriptions/${id}`)).json<Subscription>()
    await until(async () => postsTo(contact).length + (await view()).pending === 160, 'all are there')
    expect(postsTo(contact).length).toBeLessThan(160)
    expect((await view()).missed).toBe(0)
    await until(() => postsTo(contact).length === 160, 'all are sent', BUSY_MS)
  })

  it('that wait for the rate of their contact are due one after the other, and are not written again with each one that is sent', async () => {
    const { id } = await subscribe(channel.id, newContact())
    // In one transaction, so that the sender does not see them before.
    const left = await api.database.transaction(async (tx) => {
      const { rows } = await sql<{ key: number; subscriptionKey: number }>`
        INSERT INTO notification_deliveries (subscription_key, user_key, payload, attempts)
        SELECT key, user_key, '{}', 1 FROM notification_subscriptions, generate_series(1, 5) WHERE id = ${id}
        RETURNING key, subscription_key AS "subscriptionKey"`.execute(tx)
      const [first] = rows as [DueDelivery]
      await deferDeliveries(tx, first, 600, 0.1)
      return (
        await sql<{ seconds: number }>`
          SELECT extract(epoch FROM next_attempt_at - now() - interval '10 minutes')::float8 AS seconds FROM notification_deliveries
           WHERE subscription_key = ${first.subscriptionKey} ORDER BY key`.execute(tx)
      ).rows
    })
    expect(left.map(({ seconds }) => Math.round(seconds * 10))).toEqual([0, 1, 2, 3, 4])
  })

  it('wait in their channel while 1,000 wait for delivery, and none is lost', async () => {
    const contact = newContact()
    const { id } = await subscribe(channel.id, contact)
    const count = 1500
    for (let at = 0; at < count; at += 20)
      await Promise.all(Array.from({ length: 20 }, (_, index) => send(5000 + at + index)))
    await until(async () => (await viewed(id)).behind_since !== undefined, 'it is behind')
    const { pool } = api.database
    const got: string[] = []
    /** As if they were delivered, except those that are on their way; the rate of a contact would take minutes. */
    const take = async (atMost: number) => {
      const { rows } = await pool.query<{ payload: { payload: string } }>(
        `DELETE FROM notification_deliveries WHERE key IN (SELECT w.key FROM notification_deliveries w JOIN notification_subscriptions n
           ON n.key = w.subscription_key WHERE n.id = $1 AND w.attempts = 0 ORDER BY w.key LIMIT $2 FOR UPDATE OF w SKIP LOCKED) RETURNING payload`,
        [id, atMost],
      )
      got.push(...rows.map(({ payload }) => payload.payload))
    }
    expect((await viewed(id)).pending).toBeLessThanOrEqual(1000)
    await take(700)
    await until(async () => (await viewed(id)).behind_since === undefined, 'it is with the others again')
    await send(5000 + count)
    const all = await until(async () => {
      await take(count)
      const posted = postsTo(contact).map(({ body }) => (JSON.parse(body) as { payload: string }).payload)
      return got.length + posted.length > count ? [...got, ...posted] : undefined
    }, 'all are there')
    expect((await viewed(id)).missed).toBe(0)
    const values = all.map((payload) => (JSON.parse(payload) as { v: number }[])[0]?.v ?? 0)
    expect(values.toSorted((one, other) => one - other)).toEqual(
      Array.from({ length: count + 1 }, (_, index) => 5000 + index),
    )
  })

  it(
    'are sent by another process after kill -9, because they are in the database',
    { timeout: 2 * BUSY_MS },
    async () => {
      const contact = newContact()
      const { id } = await subscribe(channel.id, contact)
      // What a process leaves that died in the middle: taken, and never settled.
      await api.database.pool.query(
        `INSERT INTO notification_deliveries (subscription_key, payload, attempts, next_attempt_at)
       SELECT key, '{"left":true}', 1, now() + interval '0.2 seconds' FROM notification_subscriptions WHERE id = $1`,
        [id],
      )
      await until(
        () => postsTo(contact).some(({ body }) => body.includes('"left":true')),
        'it is sent after all',
        BUSY_MS,
      )
    },
  )
})

describe('the quota of queued bytes', () => {
  it('lets messages wait in their channel while dead letters use it up, and none is lost', async () => {
    const full = await newTenant(api)
    const [device, own] = [await full.newClient(), await full.newChannel()]
    await full.connect(device.id, own.id)
    const publish = async (value: number) => {
      const path = `/m/${full.domainId}/c/${own.id}`
      const sender = api.as(`Client ${device.credentials.secret}`)
      const sent = await sender('POST', path, [{ n: 'v', v: value }], { 'content-type': 'application/senml+json' })
      expect(sent.status, sent.text).toBe(202)
    }
    const contact = newContact()
    answers.set(pathOf(contact), [410, 410, 410])
    const { id } = await subscribe(own.id, contact, full)
    for (let value = 0; value < 3; value++) await publish(value)
    const path = `/subscriptions/${id}`
    const letters = async () => (await full.call('GET', `${path}/dead-letters`)).json<{ total: number }>().total
    await until(async () => (await letters()) === 3, 'three dead letters')
    const used = async () =>
      (await full.call('GET', `/domains/${full.domainId}/usage`)).json<{
        quotas: { queued_bytes: { limit: number | null; used: number } }
      }>().quotas.queued_bytes
    const before = await used()
    expect(before.used).toBeGreaterThan(0)
    const set = await api.admin('PUT', `/domains/${full.domainId}/quotas`, { own: { queued_bytes: before.used } })
    expect(set.status, set.text).toBe(200)
    await until(async () => (await used()).limit === before.used, 'the quota is in force')
    let next = 3
    const shown = async () => (await full.call('GET', path)).json<Subscription>()
    await until(async () => {
      await publish(next++)
      return (await shown()).behind_since !== undefined
    }, 'it is behind')
    const posted = postsTo(contact).length
    for (let more = 0; more < 3; more++) await publish(next++)
    expect((await shown()).behind_since).toBeDefined()
    expect(postsTo(contact).length).toBeLessThan(posted + 3)
    await full.call('POST', `${path}/dead-letters/discard`, { all: true })
    await until(() => postsTo(contact).length === next, 'the others follow')
    const values = postsTo(contact).map(({ body }) => {
      const { payload } = JSON.parse(body) as { payload: string }
      return (JSON.parse(payload) as [{ v: number }])[0].v
    })
    expect(values).toEqual(Array.from({ length: next }, (_, value) => value))
    await until(async () => (await shown()).behind_since === undefined, 'it is with the others again')
    expect((await shown()).missed).toBe(0)
  })
})

describe('the quota of notifications per day', () => {
  it('delays what exceeds it, and loses nothing', async () => {
    // A domain of its own: notifications of other tests that are repeated would count.
    const other = await newTenant(api)
    const [{ id: deviceId, credentials }, { id: channelId }] = [await other.newClient(), await other.newChannel()]
    await other.connect(deviceId, channelId)
    const sendMany = async (count: number) => {
      const path = `/m/${other.domainId}/c/${channelId}`
      const headers = { 'content-type': 'application/senml+json' }
      for (let value = 0; value < count; value++)
        await api.as(`Client ${credentials.secret}`)(
          'POST',
          path,
          JSON.stringify([{ n: 'voltage', v: value }]),
          headers,
        )
    }
    const limit = async (own: Record<string, number>) =>
      expect((await api.admin('PUT', `/domains/${other.domainId}/quotas`, { own })).status).toBe(200)
    const usage = async () =>
      (await other.call('GET', `/domains/${other.domainId}/usage`)).json<{
        quotas: Record<string, { limit: number | null; used: number | null }>
      }>().quotas['notifications_per_day']
    const contact = newContact()
    const { id } = await subscribe(channelId, contact, other)
    await sendMany(3)
    await until(() => postsTo(contact).length === 3, 'the notifications before the quota')
    expect(await usage()).toEqual({ limit: null, used: 3 })
    await limit({ notifications_per_day: 5 })
    await sendMany(5)
    await until(() => postsTo(contact).length === 5, 'the notifications of the day')
    const waiting = await until(async () => {
      const { pending } = (await other.call('GET', `/subscriptions/${id}`)).json<Subscription>()
      return pending === 3 ? pending : undefined
    }, 'three that wait')
    expect(waiting).toBe(3)
    expect(postsTo(contact)).toHaveLength(5)
    expect(await usage()).toEqual({ limit: 5, used: 5 })
    await limit({})
    await until(() => postsTo(contact).length === 8, 'the others')
  })
})
