/**
 * No body, address or head of a request keeps the main thread busy for more than 100 ms of processor time at a stretch, whichever route it is
 * sent to, and twice as much of it costs at most two and a half times as much. The delay of `/health` is printed, not asserted: it depends on what
 * else the machine does.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { sampled } from '../../harness/length.ts'
import { wholeDocument } from '../../harness/openapi.ts'
import { JSON_VALUES } from './forms.ts'
import { createLedger, measureInput } from './ledger.ts'
import { startPlatform } from './platform.ts'
import type { Platform, Sent } from './platform.ts'

const MIB = 1024 * 1024
/** A little below what the route takes: what is above is refused unread. */
const ORDINARY_BYTES = MIB - 4096
const BULK_BYTES = 16 * MIB - 4096

/** One reader and one validator serve all routes. */
const ROUTES_SAMPLE = 10

let platform: Platform
const ledger = createLedger()

beforeAll(async () => {
  platform = await startPlatform()
})

afterAll(async () => {
  ledger.print()
  await platform[Symbol.asyncDispose]()
})

type Operation = { method: string; path: string; types: string[]; schema: Schema | undefined }
type Schema = {
  $ref?: string
  type?: string
  properties?: Record<string, Schema>
  items?: Schema
  anyOf?: Schema[]
}
type Document = {
  paths: Record<string, Record<string, { requestBody?: { content: Record<string, { schema?: Schema }> } }>>
  components: { schemas: Record<string, Schema> }
}

const document = wholeDocument() as Document

const resolve = (schema: Schema | undefined): Schema | undefined =>
  schema?.$ref === undefined ? schema : document.components.schemas[schema.$ref.split('/').at(-1) ?? '']

const operations: Operation[] = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, { requestBody }]) => ({
    method: method.toUpperCase(),
    path,
    types: Object.keys(requestBody?.content ?? {}),
    schema: resolve(Object.values(requestBody?.content ?? {})[0]?.schema),
  })),
)

const isBulk = ({ path }: Operation) => /\/(bulk|connect|disconnect|import)$/.test(path)

function addressOf({ path }: Operation): string {
  return path
    .replaceAll('{domain_id}', platform.domainId)
    .replaceAll('{channel_id}', platform.channelId)
    .replaceAll(/\{[^{}]+\}/g, () => newId())
}

const request = (operation: Operation, type: string, body: string | Buffer): Sent => ({
  method: operation.method,
  path: addressOf(operation),
  headers: { authorization: platform.bearer, 'content-type': type },
  body,
})

/** Sends one after the other, and notes what each cost. */
async function sendAll(all: Iterable<[string, Sent]>): Promise<void> {
  for (const [name, sent] of all)
    ledger.note(name, await measureInput(() => platform.measure(() => platform.send(sent))))
  expect(ledger.tooLong()).toEqual([])
}

const withBody = operations.filter(({ types }) => types.length > 0)

describe('bodies of every route', () => {
  test('routes with bodies exist, bulk ones included', () => {
    expect(withBody.length).toBeGreaterThan(100)
    expect(withBody.filter(isBulk).length).toBeGreaterThan(8)
  })

  /** The reader of JSON is one for all routes: some forms are sent to each of them, the others to one. */
  const FOR_ALL = new Set(['nested lists', 'a list of objects', 'as many keys as are taken'])

  test.each(JSON_VALUES)('$name as the whole body', { timeout: 300_000 }, async ({ name, of }) => {
    const text = Buffer.from(of(ORDINARY_BYTES))
    const takers = withBody.filter(({ types }) => types.includes('application/json'))
    await sendAll(
      (FOR_ALL.has(name) ? sampled(takers, ROUTES_SAMPLE) : takers.slice(0, 2)).map((one) => [
        `${one.method} ${one.path} ${name}`,
        request(one, 'application/json', text),
      ]),
    )
  })

  test('in each field of its schema', { timeout: 600_000 }, async () => {
    const textOf = (form: string) => JSON_VALUES.find(({ name }) => name === form)?.of(ORDINARY_BYTES - 1024) ?? ''
    const byType = new Map([
      ['string', textOf('a text of dashes')],
      ['array', textOf('a list of texts')],
    ])
    const keys = textOf('as many keys as are taken')
    function* requests(): Iterable<[string, Sent]> {
      for (const operation of sampled(withBody, ROUTES_SAMPLE)) {
        for (const [field, schema] of Object.entries(operation.schema?.properties ?? {})) {
          const type = resolve(schema)?.type ?? 'any'
          const body = `{"name":"x",${JSON.stringify(field)}:${byType.get(type) ?? keys}}`
          yield [
            `${operation.method} ${operation.path} ${field} (${type})`,
            request(operation, 'application/json', body),
          ]
        }
      }
    }
    await sendAll(requests())
  })

  test.each(JSON_VALUES)('$name as the whole body of a bulk route', { timeout: 300_000 }, async ({ name, of }) => {
    const text = Buffer.from(of(BULK_BYTES))
    const takers = withBody.filter(isBulk)
    await sendAll(
      (FOR_ALL.has(name) ? sampled(takers, 4) : takers.slice(0, 1)).map((one) => [
        `${one.method} ${one.path} ${name} (bulk)`,
        request(one, 'application/json', text),
      ]),
    )
  })
})

describe('addresses and heads', () => {
  const LONG = 14_500
  const QUERIES: readonly [string, string][] = [
    ['digits', `limit=${'1'.repeat(LONG)}`],
    ['digits and a letter', `offset=${'1'.repeat(LONG)}x`],
    ['points', `limit=${'1.'.repeat(LONG / 2)}`],
    ['a name', `name=${'a-'.repeat(LONG / 2)}`],
    ['metadata', `metadata=${'['.repeat(LONG)}`],
    [
      'many keys',
      Array.from({ length: LONG / 6 }, (_, index) => `k${index}=`)
        .join('&')
        .slice(0, LONG),
    ],
    ['escapes', `name=${'%41'.repeat(LONG / 3)}`],
  ]

  test('queries of every route that lists', { timeout: 300_000 }, async () => {
    const reading = operations.filter(({ method, path }) => method === 'GET' && !/events|stream|live|logs$/.test(path))
    expect(reading.length).toBeGreaterThan(80)
    await sendAll(
      sampled(reading, 3).flatMap((operation, index) => {
        const [name, query] = QUERIES[index % QUERIES.length] as [string, string]
        const headers = { authorization: platform.bearer }
        return [[`GET ${operation.path} ${name}`, { method: 'GET', path: `${addressOf(operation)}?${query}`, headers }]]
      }),
    )
  })

  test('values of blanks, many fields and long paths, without an account', { timeout: 120_000 }, async () => {
    const heads: [string, Record<string, string>, string][] = [
      ['blanks within a value', { 'x-a': `a${' '.repeat(LONG)}b` }, ''],
      ['tabs within a value', { 'x-a': `a${'\t'.repeat(LONG)}b` }, ''],
      ['a token', { authorization: `Bearer ${'a.'.repeat(LONG / 2)}` }, ''],
      ['credentials', { authorization: `Basic ${'A'.repeat(LONG)}` }, ''],
      ['a type', { 'content-type': `application/json;${' ;'.repeat(LONG / 2)}` }, ''],
      ['addresses', { 'x-forwarded-for': '1,'.repeat(LONG / 2) }, ''],
      ['a path', {}, `/${'a/'.repeat(LONG / 2)}`],
      ['a path of escapes', {}, `/${'%2f'.repeat(LONG / 3)}`],
      ['many fields', Object.fromEntries(Array.from({ length: 900 }, (_, index) => [`x-${index}`, 'a'])), ''],
    ]
    for (const [name, headers, path] of heads) {
      const sent: Sent = { method: 'POST', path: path === '' ? '/m/a/c/b' : path, headers, body: '{}' }
      const measured = await measureInput(() =>
        platform.measure(async () => {
          for (let time = 0; time < 20; time++) await platform.send(sent)
        }),
      )
      ledger.note(`20 times a head with ${name}`, measured)
    }
    expect(ledger.tooLong()).toEqual([])
  })
})
