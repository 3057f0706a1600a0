/**
 * Documents of every kind, whole files of valid items among them, never keep the main thread busy for more than 100 ms of processor time at a
 * stretch, and twice as much of one costs at most two and a half times as much.
 */
import { gzipSync } from 'node:zlib'
import { Encoder } from 'cbor-x'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { AT_LENGTH, sampled } from '../../harness/length.ts'
import { CSV, DOCUMENTS, SENML, TOML, YAML, fill } from './forms.ts'
import type { Form } from './forms.ts'
import { MAX_TRIES, cheapest, createLedger, growthFault, measureInput } from './ledger.ts'
import { startPlatform } from './platform.ts'
import type { Measured, Platform, Sent } from './platform.ts'

const MIB = 1024 * 1024
const ORDINARY_BYTES = MIB - 4096
const BULK_BYTES = 16 * MIB - 4096
const MINUTES = 60_000

let platform: Platform
const ledger = createLedger()

beforeAll(async () => {
  platform = await startPlatform()
})

afterAll(async () => {
  ledger.print()
  await platform[Symbol.asyncDispose]()
})

/** As user, of a path in the domain. */
const toDomain = (path: string, type: string, body: string | Buffer): Sent => ({
  method: 'POST',
  path: `/${platform.domainId}${path}`,
  headers: { authorization: platform.bearer, 'content-type': type },
  body,
})

/** As device. */
const toChannel = (type: string | undefined, body: string | Buffer, headers: Record<string, string> = {}): Sent => ({
  method: 'POST',
  path: `/m/${platform.domainId}/c/${platform.channelId}`,
  headers: {
    authorization: `Client ${platform.clientSecret}`,
    ...(type === undefined ? {} : { 'content-type': type }),
    ...headers,
  },
  body,
})

async function measure(name: string, sent: Sent): Promise<{ measured: Measured; status: number; text: string }> {
  let answer = { status: 0, text: '' }
  const measured = await measureInput(() => platform.measure(async () => (answer = await platform.send(sent))))
  ledger.note(`${name} (${answer.status})`, measured)
  return { measured, ...answer }
}

/** The input, and twice as much of it. Collecting garbage belongs to neither: the cheapest of a few tries of each counts. */
async function requireLinear(name: string, { of }: Form, bytes: number, sentOf: (text: string) => Sent): Promise<void> {
  const tries: [Measured[], Measured[]] = [[], []]
  let fault: string | undefined
  for (let time = 0; time === 0 || (time < MAX_TRIES && fault !== undefined); time++) {
    for (const [at, text] of [of(bytes / 2), of(bytes)].entries()) {
      const { measured, status } = await measure(at === 0 ? `half of ${name}` : name, sentOf(text))
      expect(status).not.toBe(500)
      tries[at]?.push(measured)
    }
    fault = growthFault(cheapest(tries[0]), cheapest(tries[1]))
  }
  expect([name, fault]).toEqual([name, undefined])
  expect(ledger.tooLong()).toEqual([])
}

describe('profiles', () => {
  const upload = (type: string) => (text: string) => toDomain('/clients/bootstrap/profiles/upload', type, text)

  test.each(YAML)('YAML of $name', { timeout: 2 * MINUTES }, async (form) => {
    await requireLinear(`YAML of ${form.name}`, form, ORDINARY_BYTES, upload('application/yaml'))
  })

  test.each(TOML)('TOML of $name', { timeout: 2 * MINUTES }, async (form) => {
    await requireLinear(`TOML of ${form.name}`, form, ORDINARY_BYTES, upload('application/toml'))
  })

  test('a document that takes too long is refused, and the next one is read', async () => {
    const { status, text } = await platform.send(upload('application/yaml')(`{${'? '.repeat(200_000)}`))
    expect([status, text]).toEqual([413, expect.stringContaining('takes too long to parse')])
    const filler = `# ${'x'.repeat(5000)}\n`
    const profile = `${filler}name: p-${newId()}\ncontent_format: raw\ncontent_type: text/plain\ncontent_template: a\n`
    expect(await platform.send(upload('application/yaml')(profile))).toMatchObject({ status: 201 })
  })

  test(
    'one domain may have a few documents waiting, and others are served in between',
    { timeout: 2 * MINUTES },
    async () => {
      const slow = `{${'? '.repeat(200_000)}`
      const all = await Promise.all(Array.from({ length: 12 }, () => platform.send(upload('application/yaml')(slow))))
      expect(all.map(({ status }) => status).toSorted((left, right) => left - right)).toEqual([
        ...Array<number>(9).fill(413),
        429,
        429,
        429,
      ])
    },
  )
})

describe('files', () => {
  // One reader serves all three.
  for (const [at, path] of ['/clients/import', '/channels/import', '/connections/import'].entries()) {
    test.each(CSV.filter((_form, index) => AT_LENGTH || index % 3 === at))(
      `CSV of $name for ${path}`,
      { timeout: 2 * MINUTES },
      async (form) => {
        await requireLinear(`CSV of ${form.name} for ${path}`, form, BULK_BYTES, (text) =>
          toDomain(path, 'text/csv', text),
        )
      },
    )
  }

  const metadata = JSON.stringify(
    Object.fromEntries(Array.from({ length: 40 }, (_, index) => [`key${index}`, `value ${index}`])),
  )
  const items = (count: number, extra: (index: number) => string) =>
    `[${Array.from({ length: count }, (_, index) => `{"name":"n${index}"${extra(index)}}`).join(',')}]`

  const BULK: readonly [string, string, () => string][] = [
    ['clients with metadata', '/clients/bulk', () => items(10_000, () => `,"metadata":${metadata}`)],
    [
      'clients with secrets',
      '/clients/bulk',
      () => items(10_000, (index) => `,"credentials":{"secret":"${newId()}${'s'.repeat(200)}${index}"}`),
    ],
    ['clients of one secret', '/clients/bulk', () => items(10_000, () => ',"credentials":{"secret":"same"}')],
    ['clients with tags', '/clients/bulk', () => items(10_000, (index) => `,"tags":["a","b${index % 50}"]`)],
    ['wrong clients', '/clients/bulk', () => items(10_000, () => ',"tags":[1,2,3],"metadata":7')],
    ['channels with metadata', '/channels/bulk', () => items(10_000, () => `,"metadata":${metadata}`)],
    ['an import of clients', '/clients/import', () => items(10_000, () => `,"metadata":${metadata}`)],
    ['an import of wrong clients', '/clients/import', () => items(10_000, () => ',"tags":[1,2,3],"metadata":7')],
    ['an import of channels', '/channels/import', () => items(10_000, () => `,"metadata":${metadata}`)],
  ]

  test.each(sampled(BULK, 3))('10,000 %s', { timeout: 2 * MINUTES }, async (name, path, bodyOf) => {
    const { status } = await measure(`10,000 ${name}`, toDomain(path, 'application/json', bodyOf()))
    expect([200, 201, 400, 409]).toContain(status)
    expect(ledger.tooLong()).toEqual([])
  })

  test('100,000 pairs, connected, connected again, disconnected and imported', { timeout: 4 * MINUTES }, async () => {
    const idsOf = async (path: string, count: number, field: string) => {
      const { text } = await platform.send(
        toDomain(
          path,
          'application/json',
          items(count, () => ''),
        ),
      )
      return (JSON.parse(text) as Record<string, { id: string }[]>)[field]?.map(({ id }) => id) ?? []
    }
    const clients = await idsOf('/clients/bulk', 1000, 'clients')
    const channels = await idsOf('/channels/bulk', 100, 'channels')
    const pairs = JSON.stringify({ client_ids: clients, channel_ids: channels })
    for (const [path, status] of [
      ['/channels/connect', 201],
      ['/channels/connect', 201],
      ['/channels/disconnect', 204],
    ] as const) {
      const done = await measure(`100,000 pairs at ${path}`, toDomain(path, 'application/json', pairs))
      expect([done.status, done.text]).toEqual([status, ''])
    }
    const lines = clients.flatMap((client) => channels.map((channel) => `${client},${channel}`)).join('\n')
    const imported = await measure('a CSV file of 100,000 pairs', toDomain('/connections/import', 'text/csv', lines))
    expect([imported.status, imported.text]).toEqual([201, '{"total":100000}'])
    expect(ledger.tooLong()).toEqual([])
  })

  test('pairs are counted before they are multiplied', async () => {
    const ids = Array.from({ length: 10_000 }, () => newId())
    const body = JSON.stringify({ client_ids: ids, channel_ids: ids })
    const { status, text } = await measure(
      'a hundred million pairs',
      toDomain('/connections/import', 'application/json', body),
    )
    expect([status, JSON.parse(text)]).toMatchObject([
      413,
      { message: 'a request is limited to 100000 pairs of clients and channels: got 100000000' },
    ])
    const many = `[${fill(BULK_BYTES, () => body, ',')}]`.slice(0, BULK_BYTES)
    await measure('many times a hundred million pairs', toDomain('/connections/import', 'application/json', many))
    expect(ledger.tooLong()).toEqual([])
  })
})

describe('messages', () => {
  for (const type of ['application/senml+json', 'application/json', undefined]) {
    test.each(sampled([...SENML, ...DOCUMENTS], type === undefined ? 2 : 5))(
      `$name as ${type}`,
      { timeout: 2 * MINUTES },
      async (form) => {
        await requireLinear(`${form.name} as ${type}`, form, ORDINARY_BYTES, (text) => toChannel(type, text))
      },
    )
  }

  test('a pack of CBOR', { timeout: 2 * MINUTES }, async () => {
    const encoder = new Encoder({ useRecords: false, mapsAsObjects: false })
    const packOf = (count: number) =>
      encoder.encode(
        Array.from(
          { length: count },
          (_, index) =>
            new Map<number, unknown>([
              [0, `n${index}`],
              [2, index],
            ]),
        ),
      )
    const nested = Buffer.concat([Buffer.alloc(ORDINARY_BYTES, 0x81), Buffer.from([0x80])])
    for (const [name, body] of [
      ['10,000 records', packOf(10_000)],
      ['80,000 records', packOf(80_000)],
      ['empty maps', Buffer.concat([Buffer.from([0x9f]), Buffer.alloc(ORDINARY_BYTES, 0xa0), Buffer.from([0xff])])],
      ['numbers', Buffer.concat([Buffer.from([0x9f]), Buffer.alloc(ORDINARY_BYTES, 0x01), Buffer.from([0xff])])],
      [
        'pieces of text',
        Buffer.concat([Buffer.from([0x81, 0xa1, 0x00, 0x7f]), Buffer.alloc(ORDINARY_BYTES, 0x60), Buffer.from([0xff])]),
      ],
      ['nested lists', nested],
    ] as const)
      await measure(`CBOR: ${name}`, toChannel('application/senml+cbor', body))
    expect(ledger.tooLong()).toEqual([])
  })

  test('bytes, and bytes that become many more', { timeout: 2 * MINUTES }, async () => {
    await measure('a raw body', toChannel('application/octet-stream', Buffer.alloc(ORDINARY_BYTES, 1)))
    const gzip = { 'content-encoding': 'gzip' }
    await measure('a compressed bomb', toChannel('application/json', gzipSync(Buffer.alloc(64 * MIB)), gzip))
    await measure(
      'a compressed pack',
      toChannel('application/json', gzipSync(Buffer.from(SENML[0]?.of(ORDINARY_BYTES) ?? '')), gzip),
    )
    expect(ledger.tooLong()).toEqual([])
  })
})
