/** Mails and webhook requests of rules: docs/guides/rules.md, Actions and Mails and webhooks. */
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { newId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { readMails } from '../api/mailbox.ts'
import { until } from '../harness/until.ts'
import { expectStatus } from './consumers-support.ts'
import { newRule, sendValue, showRule, untilSeen } from './rules-support.ts'
import type { RuleBody } from './rules-support.ts'
import { startPlant } from './support.ts'
import type { Device, Plant } from './support.ts'

type Post = { path: string; body: string; signature: string }
type Contact = {
  id: string
  contact: string
  status: string
  pending: number
  dead_letters: number
  signing_secret?: string
  last_error?: { reason: string; count: number }
}

let plant: Plant
let device: Device & { channelId: string }
let server: Server
let base: string
const dataDir = mkdtempSync(join(tmpdir(), 'skein-rules-'))
const posts: Post[] = []
/** What the receiver answers, by path; 200 else. `hang`: nothing. */
const answers = new Map<string, (number | 'hang')[]>()

beforeAll(async () => {
  server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => void chunks.push(chunk))
    request.on('end', () => {
      const path = request.url ?? ''
      const body = Buffer.concat(chunks).toString()
      posts.push({ path, body, signature: String(request.headers['x-skein-signature']) })
      const answer = answers.get(path)?.shift() ?? 200
      if (answer === 'hang') return
      response.statusCode = answer
      response.end()
    })
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  base = `http://127.0.0.1:${port}`
  plant = await startPlant({
    environment: { SKEIN_DATA_DIR: dataDir, SKEIN_WEBHOOK_HOSTS: `127.0.0.1:${port}` },
    notificationTimes: { retrySeconds: [0.05, 0.05], intervalMs: 20, rightSeconds: 0.2, postDeadlineMs: 300 },
    ruleTimes: { intervalMs: 20 },
  })
  device = await plant.newConnectedDevice()
})
afterEach(() => answers.clear())
afterAll(async () => {
  await plant[Symbol.asyncDispose]()
  server.closeAllConnections()
  server.close()
  rmSync(dataDir, { recursive: true })
})

const newUrl = () => `${base}/${newId()}`
const postsTo = (url: string) => posts.filter(({ path }) => path === new URL(url).pathname)
const send = async (value: number, of = device) => await sendValue(plant, of, of.channelId, value)

/** A rule over the values above 30 of a device. */
async function ruleWith(actions: readonly object[], more: object = {}): Promise<RuleBody> {
  const source = { type: 'messages', channels: [device.channelId], names: ['temperature'] }
  return await newRule(plant, { source, condition: 'value > 30.0', actions, ...more })
}

async function contactsOf(id: string, call = plant.owner.call): Promise<Contact[]> {
  const answer = await call('GET', `/${plant.domainId}/rules/${id}/contacts`)
  return expectStatus(200, answer).json<{ contacts: Contact[] }>().contacts
}

const contactOf = async (id: string): Promise<Contact> => (await contactsOf(id))[0] as Contact

async function remove(rule: RuleBody): Promise<void> {
  expectStatus(204, await plant.owner.call('DELETE', `/${plant.domainId}/rules/${rule.id}`))
}

const verify = async (userId: string, email: string) =>
  await sql`UPDATE users SET email = ${email}, verified_at = now() WHERE id = ${userId}::uuid`.execute(
    plant.api.database.db,
  )

describe('a webhook', () => {
  it('gets one signed JSON request for each moment, with what caused it', async () => {
    const url = newUrl()
    const rule = await ruleWith([{ type: 'webhook', url, on: ['raise', 'repeat', 'clear'] }], { severity: 'major' })
    for (const value of [31, 32, 20]) await send(value)
    await until(() => postsTo(url).length === 3, 'three requests')
    const bodies = postsTo(url).map(({ body }) => JSON.parse(body) as Record<string, unknown>)
    expect(bodies.map(({ moment, value }) => [moment, value])).toEqual([
      ['raise', 31],
      ['repeat', 32],
      ['clear', 20],
    ])
    expect(bodies[0]).toMatchObject({
      rule: { id: rule.id, name: rule.name },
      severity: 'major',
      client: { id: device.id },
      source: { channel: { id: device.channelId } },
      cause: expect.stringMatching(/^\d+-\d+-\d+$/) as unknown,
      id: expect.stringMatching(/^[0-9a-f-]{36}$/) as unknown,
    })
    const { signing_secret: secret = '' } = await contactOf(rule.id)
    for (const { signature, body } of postsTo(url)) {
      const [, t = '', v1] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(signature) ?? []
      expect(v1).toBe(createHmac('sha256', secret).update(`${t}.${body}`).digest('hex'))
    }
    expect((await showRule(plant, rule.id)).acted).toBe(3)
    await remove(rule)
  })

  it('of a template gets what the template says, and nothing more', async () => {
    const url = newUrl()
    const payload = '{"text": "{{ name }} is at {{ value }} \\" °C", "level": "{{ value }}"}'
    const rule = await ruleWith([{ type: 'webhook', url, payload }])
    await send(33)
    await until(() => postsTo(url).length === 1, 'a request')
    expect(JSON.parse(postsTo(url)[0]?.body ?? '')).toEqual({ text: 'temperature is at 33 " °C', level: 33 })
    await send(10)
    await remove(rule)
  })

  it('that fails is tried again, shows on the rule, and becomes a dead letter that can be retried and discarded', async () => {
    const url = newUrl()
    const path = new URL(url).pathname
    answers.set(path, [500, 500, 500, 500, 500, 500])
    const rule = await ruleWith([{ type: 'webhook', url }])
    await send(31)
    await until(async () => (await contactOf(rule.id)).dead_letters === 1, 'a dead letter')
    expect((await showRule(plant, rule.id)).last_error).toMatchObject({
      reason: `${new URL(url).host}: the contact responded with status 500`,
      count: 3,
    })
    const letters = `/${plant.domainId}/rules/${rule.id}/dead-letters`
    const page = expectStatus(200, await plant.owner.call('GET', letters)).json<{
      total: number
      dead_letters: { id: string; contact: string; text: string; attempts: number; error: string }[]
    }>()
    expect(page.total).toBe(1)
    expect(page.dead_letters[0]).toMatchObject({ contact: url, attempts: 3 })
    expect(JSON.parse(page.dead_letters[0]?.text ?? '')).toMatchObject({ moment: 'raise', value: 31 })
    const idOfPost = () => (JSON.parse(postsTo(url).at(-1)?.body ?? '') as { id: string }).id
    expect(idOfPost()).toBe(page.dead_letters[0]?.id)
    // Another three attempts.
    expect(expectStatus(200, await plant.owner.call('POST', `${letters}/retry`, { all: true })).json()).toEqual({
      count: 1,
    })
    await until(() => postsTo(url).length === 6, 'three further attempts')
    await until(async () => (await contactOf(rule.id)).dead_letters === 1, 'a dead letter again')
    expectStatus(200, await plant.owner.call('POST', `${letters}/retry`, { ids: [page.dead_letters[0]?.id] }))
    await until(async () => (await showRule(plant, rule.id)).last_error === undefined, 'the error has ended')
    expect(idOfPost()).toBe(page.dead_letters[0]?.id)
    expect(await contactOf(rule.id)).toMatchObject({ pending: 0, dead_letters: 0 })
    await send(10)
    answers.set(path, [410])
    await send(40)
    await until(async () => (await contactOf(rule.id)).dead_letters === 1, 'a dead letter at once')
    expect(expectStatus(200, await plant.owner.call('POST', `${letters}/discard`, { all: true })).json()).toEqual({
      count: 1,
    })
    expect(await contactOf(rule.id)).toMatchObject({ pending: 0, dead_letters: 0 })
    expectStatus(400, await plant.owner.call('POST', `${letters}/retry`, {}))
    await send(10)
    await remove(rule)
  })

  it('that hangs delays neither the evaluation nor other contacts', async () => {
    const [hanging, other] = [newUrl(), newUrl()]
    answers.set(
      new URL(hanging).pathname,
      Array.from({ length: 100 }, () => 'hang' as const),
    )
    const on = ['raise', 'repeat']
    const rule = await ruleWith([{ type: 'webhook', url: hanging, on }])
    const quick = await ruleWith([{ type: 'webhook', url: other, on }])
    const begun = performance.now()
    for (let value = 31; value <= 50; value++) await send(value)
    await untilSeen(plant, rule.id, 20)
    await until(() => postsTo(other).length === 20, 'the others are told')
    // One attempt that hangs takes 300 ms: twenty in a row would take 6 s.
    expect(performance.now() - begun).toBeLessThan(5_000)
    expect(postsTo(other).map(({ body }) => (JSON.parse(body) as { value: number }).value)).toEqual(
      Array.from({ length: 20 }, (_, index) => 31 + index),
    )
    await send(10)
    await remove(rule)
    await remove(quick)
  })

  it('is refused at addresses that subscriptions refuse', async () => {
    const source = { type: 'messages', channels: [device.channelId] }
    for (const url of [
      'http://example.com/hook',
      'https://127.0.0.1/hook',
      'https://[::1]/hook',
      'https://user:secret@example.com/',
      'https://localhost/',
      'ann@example.com',
      'file:///etc/passwd',
    ])
      for (const path of ['rules', 'rules/try']) {
        const body = { name: newId(), source, condition: 'true', actions: [{ type: 'webhook', url }] }
        const answer = await plant.owner.call('POST', `/${plant.domainId}/${path}`, body)
        expect(answer.status, `${path} ${url}`).toBe(400)
        expect(answer.text).toContain('/actions/0/url')
      }
    const body = { name: newId(), source, condition: 'true' }
    for (const [action, at] of [
      [{ type: 'webhook', url: newUrl(), payload: 'no json' }, '/actions/0/payload'],
      [{ type: 'mail', to: ['no address'] }, '/actions/0/to/0'],
      [{ type: 'mail', to: ['ann@example.com'], text: '{{ nothing }}' }, '/actions/0/text'],
      [{ type: 'mail', to: [] }, '/actions/0'],
    ] as const) {
      const answer = await plant.owner.call('POST', `/${plant.domainId}/rules`, { ...body, actions: [action] })
      expect(answer.status, answer.text).toBe(400)
      expect(answer.text).toContain(at)
    }
  })
})

describe('a mail', () => {
  it('goes to the verified address of a member, with its subject on one line', async () => {
    const address = `owner-${newId()}@example.com`
    await verify(plant.owner.id, address)
    const rule = await ruleWith(
      [{ type: 'mail', to: [address], subject: '{{ name }}\nBcc: eve@example.com', text: 'At {{ value }}' }],
      {},
    )
    expect(await contactOf(rule.id)).toMatchObject({ contact: address, status: 'active' })
    await send(31)
    const mail = await until(() => readMails(dataDir, address)[0], 'a mail')
    expect(mail.subject).toBe('temperature Bcc: eve@example.com')
    expect(mail.text.trim()).toBe('At 31')
    await send(10)
    await remove(rule)
  })

  it('has a subject of 250 characters at most, none of which is half', async () => {
    const address = `long-${newId()}@example.com`
    await verify(plant.owner.id, address)
    const actions = [{ type: 'mail', to: [address], subject: `${'x'.repeat(249)}🙂` }]
    const rule = await ruleWith(actions)
    await send(31)
    await until(() => readMails(dataDir, address).length === 1, 'a mail')
    await send(10)
    await remove(rule)
  })

  it('says by itself what happened', async () => {
    const address = `told-${newId()}@example.com`
    await verify(plant.owner.id, address)
    const rule = await ruleWith([
      { type: 'mail', to: [address], on: ['raise', 'clear'] },
      { type: 'alarm', text: '{{ name }} too high' },
    ])
    await send(31)
    await send(10)
    const mails = await until(() => {
      const all = readMails(dataDir, address)
      return all.length === 2 ? all : undefined
    }, 'two mails')
    expect(mails.map(({ subject }) => subject)).toEqual([
      '[warning] raised: temperature too high',
      '[warning] cleared: temperature too high',
    ])
    expect(mails[0]?.text).toContain(`Rule: ${rule.name} (raised)`)
    expect(mails[0]?.text).toContain('Value: 31 Cel')
    await remove(rule)
  })

  it('to another address waits for its confirmation, which the rule says', async () => {
    const address = `other-${newId()}@example.com`
    const rule = await ruleWith([{ type: 'mail', to: [address] }])
    expect(await contactOf(rule.id)).toMatchObject({ status: 'pending' })
    const link = await until(() => readMails(dataDir, address)[0], 'the link')
    await send(31)
    const refused = await untilSeen(plant, rule.id, 1)
    expect(refused.last_error?.reason).toContain(`${address} has not confirmed`)
    expect(readMails(dataDir, address)).toHaveLength(1)
    const token = /token=(\S+)/.exec(link.text)?.[1] ?? ''
    expectStatus(200, await plant.owner.call('GET', `/subscriptions/confirm?token=${token}`))
    expect(await contactOf(rule.id)).toMatchObject({ status: 'active' })
    await send(10)
    await send(31)
    await until(() => readMails(dataDir, address).length === 2, 'a mail')
    await send(10)
    // It is no subscription of the user.
    expect((await plant.owner.call('GET', '/subscriptions')).json<{ total: number }>().total).toBe(0)
    await remove(rule)
  })

  it('is not sent to a member of another domain, nor to one who has left', async () => {
    const stranger = await plant.api.newUser()
    const address = `stranger-${newId()}@example.com`
    await verify(stranger.id, address)
    const rule = await ruleWith([{ type: 'mail', to: [address] }])
    expect(await contactOf(rule.id)).toMatchObject({ status: 'pending' })
    await sql`UPDATE notification_subscriptions n SET member_key = u.key FROM users u WHERE u.id = ${stranger.id}::uuid AND n.contact = ${address}`.execute(
      plant.api.database.db,
    )
    await send(31)
    await until(
      async () => (await showRule(plant, rule.id)).last_error?.reason.includes('no longer that of a member') === true,
      'the mail waits',
    )
    expect(readMails(dataDir, address).filter(({ subject }) => subject.startsWith('['))).toEqual([])
    await send(10)
    await remove(rule)
  })
})

describe('rights', () => {
  it('of the user of the rule are looked at again before each delivery', async () => {
    const { db } = plant.api.database
    const url = newUrl()
    const rule = await ruleWith([{ type: 'webhook', url }])
    const { id } = await contactOf(rule.id)
    const set = async (change: 'enable' | 'disable') =>
      expectStatus(200, await plant.owner.call('POST', `/${plant.domainId}/channels/${device.channelId}/${change}`))
    await set('disable')
    const payload = JSON.stringify({ publisher: device.id, channel: device.channelId, body: '{"moment":"raise"}' })
    await sql`INSERT INTO notification_deliveries (subscription_key, payload)
      SELECT key, ${payload}::jsonb FROM notification_subscriptions WHERE id = ${id}::uuid`.execute(db)
    await until(
      async () => (await showRule(plant, rule.id)).last_error?.reason.includes('may not subscribe') === true,
      'the request waits for the right',
    )
    expect(postsTo(url)).toEqual([])
    await set('enable')
    await until(() => postsTo(url).length === 1, 'the request follows')
    await until(async () => (await showRule(plant, rule.id)).last_error === undefined, 'the error has ended')
    await remove(rule)
  })

  it('to see contacts and dead letters are those to change the rule, in its domain', async () => {
    const rule = await ruleWith([{ type: 'webhook', url: newUrl() }])
    const other = await plant.api.newUser()
    const domain = expectStatus(201, await other.call('POST', '/domains', { name: newId() })).json<{ id: string }>().id
    for (const [method, path, body] of [
      ['GET', 'contacts', undefined],
      ['GET', 'dead-letters', undefined],
      ['POST', 'dead-letters/retry', { all: true }],
      ['POST', 'dead-letters/discard', { all: true }],
    ] as const) {
      expect((await other.call(method, `/${plant.domainId}/rules/${rule.id}/${path}`, body)).status).toBe(403)
      expect((await other.call(method, `/${domain}/rules/${rule.id}/${path}`, body)).status).toBe(404)
    }
    await remove(rule)
  })

  it('are those of who last changed the rule: a contact that is gone takes what waits for it along', async () => {
    const [first, second] = [newUrl(), newUrl()]
    answers.set(new URL(first).pathname, [410])
    const rule = await ruleWith([{ type: 'webhook', url: first }])
    await send(31)
    await until(async () => (await contactOf(rule.id)).dead_letters === 1, 'a dead letter')
    const { id } = await contactOf(rule.id)
    expectStatus(200, await plant.owner.call('PATCH', `/${plant.domainId}/rules/${rule.id}`, { for: '0s' }))
    expect(await contactOf(rule.id)).toMatchObject({ id, dead_letters: 1 })
    const actions = [{ type: 'webhook', url: second }]
    expectStatus(200, await plant.owner.call('PATCH', `/${plant.domainId}/rules/${rule.id}`, { actions }))
    expect(await contactsOf(rule.id)).toMatchObject([{ contact: second, dead_letters: 0 }])
    await send(10)
    await remove(rule)
  })
})

it('a rule with a hundred contacts stores them with one statement, and knows which are confirmed', async () => {
  const [own, colleague] = [`own-${newId()}@example.com`, `Colleague-${newId()}@example.com`]
  await verify(plant.owner.id, own)
  const stranger = await plant.api.newUser()
  await verify(stranger.id, colleague.toLowerCase())
  const addresses = [own, colleague, ...Array.from({ length: 97 }, (_, at) => `a${at}-${newId()}@example.com`)]
  const url = newUrl()
  const actions = [
    { type: 'webhook', url },
    ...Array.from({ length: 9 }, (_, at) => ({ type: 'mail', to: addresses.slice(at * 10, at * 10 + 10) })),
  ]
  const prototype = pg.Client.prototype as { query: (...args: unknown[]) => unknown }
  const original = prototype.query
  const written: string[] = []
  prototype.query = function (this: pg.Client, ...args: unknown[]) {
    const { text = '' } = args[0] as { text?: string }
    if (/INSERT INTO notification_subscriptions|UPDATE notification_deliveries w SET user_key/.test(text))
      written.push(text)
    return original.apply(this, args)
  }
  let rule: RuleBody
  try {
    rule = await ruleWith(actions, { status: 'disabled' })
  } finally {
    prototype.query = original
  }
  expect(written.map((text) => text.slice(0, 6))).toEqual(['INSERT', 'UPDATE'])
  const contacts = await contactsOf(rule.id)
  expect(contacts.map(({ contact }) => contact).toSorted()).toEqual([url, ...addresses.slice(0, 90)].toSorted())
  expect(contacts.flatMap(({ contact, status }) => (status === 'active' ? [contact] : [])).toSorted()).toEqual(
    [url, own].toSorted(),
  )
  await remove(rule)
})

it('a rule that is disabled or deleted takes back what waits, and keeps its dead letters', async () => {
  const { db } = plant.api.database
  const newOne = async () => {
    const url = newUrl()
    return { url, rule: await ruleWith([{ type: 'webhook', url }]) }
  }
  const [disabled, deleted, other] = [await newOne(), await newOne(), await newOne()]
  answers.set(new URL(disabled.url).pathname, [410])
  await send(31)
  await until(async () => (await contactOf(disabled.rule.id)).dead_letters === 1, 'a dead letter')
  await until(() => postsTo(other.url).length === 1 && postsTo(deleted.url).length === 1, 'the others were told')
  const overview = async (call = plant.owner.call) => {
    const answer = await call('GET', `/${plant.domainId}/overview`)
    return expectStatus(200, answer).json<{ dead_letters: object }>().dead_letters
  }
  const { id, name } = disabled.rule
  expect(await overview()).toEqual({ total: 1, sources: [{ kind: 'rule', id, name, count: 1 }] })
  const setChannel = async (change: 'enable' | 'disable') =>
    expectStatus(200, await plant.owner.call('POST', `/${plant.domainId}/channels/${device.channelId}/${change}`))
  await setChannel('disable')
  const payload = JSON.stringify({ publisher: device.id, channel: device.channelId, body: '{"moment":"clear"}' })
  await sql`INSERT INTO notification_deliveries (subscription_key, payload) SELECT n.key, ${payload}::jsonb
    FROM notification_subscriptions n JOIN rules r ON r.key = n.rule_key
    WHERE r.id = ANY (${[disabled, deleted, other].map(({ rule }) => rule.id)}::uuid[])`.execute(db)
  expect(await contactOf(disabled.rule.id)).toMatchObject({ pending: 1 })
  const url = (rule: RuleBody) => `/${plant.domainId}/rules/${rule.id}`
  expectStatus(200, await plant.owner.call('POST', `${url(disabled.rule)}/disable`))
  await remove(deleted.rule)
  expect(await contactOf(disabled.rule.id)).toMatchObject({ pending: 0, dead_letters: 1 })
  await setChannel('enable')
  await until(() => postsTo(other.url).length === 2, 'a rule that goes on tells')
  expect([postsTo(disabled.url).length, postsTo(deleted.url).length]).toEqual([1, 1])
  const { rows } = await sql<{
    operation: string
    taken: number | null
  }>`SELECT operation, (attributes -> 'taken_back')::int AS taken
    FROM journal WHERE operation IN ('rule.disable', 'rule.remove') AND attributes ->> 'id' = ANY (${[disabled.rule.id, deleted.rule.id]}::text[])
    ORDER BY xid, seq`.execute(db)
  expect(rows).toEqual([
    { operation: 'rule.disable', taken: 1 },
    { operation: 'rule.remove', taken: 1 },
  ])
  // Who wants it all the same sends it.
  expectStatus(200, await plant.owner.call('POST', `${url(disabled.rule)}/dead-letters/retry`, { all: true }))
  await until(() => postsTo(disabled.url).length === 2, 'the dead letter is sent')
  await send(10)
  await remove(disabled.rule)
  await remove(other.rule)
})

it('a rule does not notify a contact for which 1,000 notifications wait, and says so', async () => {
  const url = newUrl()
  const rule = await ruleWith([{ type: 'webhook', url }])
  const { id } = await contactOf(rule.id)
  await sql`INSERT INTO notification_deliveries (subscription_key, payload, next_attempt_at)
    SELECT key, '{}', now() + interval '1 day' FROM notification_subscriptions, generate_series(1, 1000) WHERE id = ${id}::uuid`.execute(
    plant.api.database.db,
  )
  await send(31)
  const full = await untilSeen(plant, rule.id, 1)
  expect(full).toMatchObject({ matched: 1, acted: 0 })
  expect(full.last_error?.reason).toMatch(/^1000 notifications wait for /)
  await send(10)
  await remove(rule)
})
