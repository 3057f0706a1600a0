/**
 * Subscriptions send no mail to an address that has not agreed: it gets one link, signed and expiring, and nothing else until
 * the link is followed (decision 57).
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { newId } from '#core/ids.ts'
import { readMails } from '../api/mailbox.ts'
import { newTenant } from '../api/support.ts'
import type { Channel, Client, Tenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi } from '../harness/api.ts'
import { until } from '../harness/until.ts'

const PUBLIC_URL = 'https://skein.example.com'

type Subscription = { id: string; status: string; contact: string; pending: number }

let api: TestApi
let tenant: Tenant
let client: Client
let channel: Channel
const dataDir = mkdtempSync(join(tmpdir(), 'skein-unconfirmed-'))

beforeAll(async () => {
  api = await startTestApi({
    environment: { SKEIN_DATA_DIR: dataDir, SKEIN_PUBLIC_URL: PUBLIC_URL },
    notificationTimes: { retrySeconds: [0.05, 0.05], intervalMs: 20 },
  })
})
beforeEach(async () => {
  tenant = await newTenant(api)
  client = await tenant.newClient()
  channel = await tenant.newChannel({ name: 'the secret project' })
  await tenant.connect(client.id, channel.id)
})
afterAll(async () => {
  await api[Symbol.asyncDispose]()
  rmSync(dataDir, { recursive: true })
})

const newAddress = () => `someone-${newId().slice(0, 8)}@example.org`

async function subscribe(contact: string, topic = channel.id, by = tenant): Promise<Subscription> {
  const made = await by.call('POST', '/subscriptions', { topic, contact })
  expect(made.status, made.text).toBe(201)
  return (await by.call('GET', String(made.headers['location']))).json<Subscription>()
}

const statusOf = async (id: string, by = tenant) =>
  (await by.call('GET', `/subscriptions/${id}`)).json<Subscription>().status

async function send(text: string, subtopic = ''): Promise<void> {
  const answer = await api.as(`Client ${client.credentials.secret}`)(
    'POST',
    `/m/${tenant.domainId}/c/${channel.id}${subtopic}`,
    text,
    { 'content-type': 'text/plain' },
  )
  expect(answer.status).toBe(202)
}

/** The link in the `count`th mail to the address. */
async function linkOf(address: string, count = 1): Promise<URL> {
  const mail = await until(() => readMails(dataDir, address)[count - 1], `mail ${count} to ${address}`)
  const link = /^https:\/\/\S+(?=\r$)/m.exec(mail.text)?.[0] ?? ''
  expect(link, mail.text).not.toBe('')
  return new URL(link)
}

const follow = (link: URL) => api.anonymous('GET', `${link.pathname}${link.search}`)

/** Everything that was stored before caused its notifications: a subscription of the verified owner proves it. */
async function untilTold(text: string): Promise<void> {
  const { rows } = await api.database.pool.query<{ email: string }>('SELECT email FROM users WHERE id = $1', [
    tenant.user.id,
  ])
  const own = rows[0]?.email ?? ''
  await until(() => readMails(dataDir, own).some((mail) => mail.text.includes(text)), `the owner is told of ${text}`)
}

/** The owner's own address, proved. */
async function verifyOwner(): Promise<string> {
  const { rows } = await api.database.pool.query<{ email: string }>(
    'UPDATE users SET verified_at = now() WHERE id = $1 RETURNING email',
    [tenant.user.id],
  )
  return rows[0]?.email ?? ''
}

describe('a subscription to an email address', () => {
  it('is pending and sends only one link, until the link is followed', async () => {
    const witness = await subscribe(await verifyOwner())
    expect(witness.status).toBe('active')
    const address = newAddress()
    const made = await subscribe(address)
    expect(made).toMatchObject({ status: 'pending', contact: address })
    await send('before the link')
    await untilTold('before the link')
    expect(readMails(dataDir, address)).toHaveLength(1)
    expect((await tenant.call('GET', `/subscriptions/${made.id}`)).json()).toMatchObject({ pending: 0, missed: 0 })

    const followed = await follow(await linkOf(address))
    expect(followed.status, followed.text).toBe(200)
    expect(await statusOf(made.id)).toBe('active')
    // It may be followed again: programs that look for viruses follow it first.
    expect((await follow(await linkOf(address))).status).toBe(200)
    await send('after the link')
    const told = await until(
      () => readMails(dataDir, address).find(({ text }) => text.includes('after the link')),
      'the notification',
    )
    expect(told.subject).toContain(channel.id)
    expect(readMails(dataDir, address).some(({ text }) => text.includes('before the link'))).toBe(false)
  })

  it('is active at once for the verified address of the caller only, in any case', async () => {
    const own = await verifyOwner()
    expect((await subscribe(own.toUpperCase())).status).toBe('active')
    const other = await newTenant(api)
    const theirs = await subscribe(own, (await other.newChannel()).id, other)
    expect(theirs.status).toBe('pending')
    const { rows } = await api.database.pool.query<{ email: string }>('SELECT email FROM users WHERE id = $1', [
      other.user.id,
    ])
    const unverified = await subscribe(rows[0]?.email ?? '', (await other.newChannel()).id, other)
    expect(unverified.status).toBe('pending')
  })

  it('is sent one mail for repeated subscriptions, and the link is valid for all of them', async () => {
    const address = newAddress()
    const made = []
    for (const subtopic of ['', '.a', '.b', '.c']) made.push(await subscribe(address, `${channel.id}${subtopic}`))
    const link = await linkOf(address)
    expect(readMails(dataDir, address)).toHaveLength(1)
    expect((await follow(link)).status).toBe(200)
    for (const { id } of made) expect(await statusOf(id)).toBe('active')
    expect((await subscribe(address, `${channel.id}.d`)).status).toBe('active')
    // What it agreed to with one user is nothing to another one.
    const other = await newTenant(api)
    expect((await subscribe(address, (await other.newChannel()).id, other)).status).toBe('pending')
  })
})

describe('the link', () => {
  it('is built from SKEIN_PUBLIC_URL, and contains neither the subscriber nor the topic', async () => {
    const address = newAddress()
    const { id } = await subscribe(address, `${channel.id}.pay-here-now`)
    const link = await linkOf(address)
    expect(link.origin).toBe(PUBLIC_URL)
    const [mail] = readMails(dataDir, address)
    const answer = await follow(link)
    const { rows } = await api.database.pool.query<{ email: string; first_name: string }>(
      'SELECT email, first_name FROM users WHERE id = $1',
      [tenant.user.id],
    )
    const hidden = [channel.id, channel.name, 'pay-here-now', tenant.domainId, tenant.user.id, tenant.user.username]
    for (const word of [...hidden, rows[0]?.email, rows[0]?.first_name]) {
      expect(mail?.text).not.toContain(word)
      expect(mail?.subject).not.toContain(word)
      expect(answer.text).not.toContain(word)
    }
    expect(await statusOf(id)).toBe('active')
  })

  it('is refused alike when it is changed, expired, or its subscription has ended', async () => {
    const address = newAddress()
    const { id } = await subscribe(address)
    const link = await linkOf(address)
    const token = link.searchParams.get('token') ?? ''
    const [tokenId = '', expires = '', signature = ''] = token.split('.')
    expect(tokenId).toBe(id)
    const another = await subscribe(newAddress())
    const past = String(Math.floor(Date.now() / 1000) - 1)
    const refusals = []
    for (const forged of [
      `${another.id}.${expires}.${signature}`,
      `${id}.${Number(expires) + 1}.${signature}`,
      `${id}.${past}.${signature}`,
      `${id}.${expires}.${'A'.repeat(signature.length)}`,
      `${id}.${expires}.`,
      `${id}.${expires}`,
      `${token}.x`,
      '..',
      'x',
    ]) {
      const answer = await api.anonymous('GET', `/subscriptions/confirm?token=${encodeURIComponent(forged)}`)
      refusals.push([answer.status, answer.text])
    }
    expect(await statusOf(id)).toBe('pending')
    expect(await statusOf(another.id)).toBe('pending')
    expect((await tenant.call('DELETE', `/subscriptions/${id}`)).status).toBe(204)
    const ended = await follow(link)
    refusals.push([ended.status, ended.text])
    for (const [status, text] of refusals) {
      expect(status).toBe(401)
      expect(text).toBe(refusals[0]?.[1])
    }
  })

  it('expires: its time is part of what is signed', async () => {
    const address = newAddress()
    await subscribe(address)
    const [, expires] = ((await linkOf(address)).searchParams.get('token') ?? '').split('.')
    const days = (Number(expires) - Date.now() / 1000) / 86_400
    expect(days).toBeGreaterThan(2.9)
    expect(days).toBeLessThanOrEqual(3)
  })

  it('is sent again on demand, for the owner of the subscription only, a few times an hour', async () => {
    const address = newAddress()
    const { id } = await subscribe(address)
    await linkOf(address)
    const again = (by = tenant) => by.call('POST', `/subscriptions/${id}/confirmation`)
    expect((await again(await newTenant(api))).status).toBe(404)
    expect((await api.anonymous('POST', `/subscriptions/${id}/confirmation`)).status).toBe(401)
    expect((await again()).status).toBe(200)
    expect((await again()).status).toBe(200)
    const refused = await again()
    expect([refused.status, Number(refused.headers['retry-after']) > 60]).toEqual([429, true])
    // Nor does a new subscription of the same user, or one of another user, get more out of it.
    expect((await tenant.call('DELETE', `/subscriptions/${id}`)).status).toBe(204)
    const other = await newTenant(api)
    for (const by of [tenant, other]) {
      const waiting = await subscribe(address, (await by.newChannel()).id, by)
      expect(waiting.status).toBe('pending')
    }
    await linkOf(address, 3)
    await subscribe(newAddress())
    expect(readMails(dataDir, address)).toHaveLength(3)
    expect((await follow(await linkOf(address, 3))).status, 'of a subscription that has ended').toBe(401)
  })

  it('is sent to twenty addresses an hour per user', async () => {
    const addresses = Array.from({ length: 22 }, newAddress)
    for (const [place, address] of addresses.entries()) await subscribe(address, `${channel.id}.n${place}`)
    for (const address of addresses.slice(0, 20)) await linkOf(address)
    for (const address of addresses.slice(20)) expect(readMails(dataDir, address)).toEqual([])
  })
})
