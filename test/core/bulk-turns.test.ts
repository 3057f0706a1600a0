/** Bulk requests take turns: of one owner one at a time, of all a few (decision 0114). */
import { connect } from 'node:net'
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { responses } from '#http/index.ts'
import { Slots } from '#core/slots.ts'
import { until } from '../harness/until.ts'
import { startEdge } from './edge.ts'
import type { TestEdge } from './edge.ts'

const MAX_WAITING = 4
const MANY = 101
/** Above the size up to which a body is parsed at once. */
const LARGE_TEXT = 'x'.repeat(70_000)

let edge: TestEdge
let slots: Slots
/** Owners of the requests whose handlers run, in the order in which they began, with a function that ends the handler. */
let running: { owner: string; end: () => void }[]
let begun: string[]
let most: Record<string, number>

const ownerIn = ({ params }: FastifyRequest) => (params as { owner: string }).owner

async function start(waitMs: number) {
  slots = new Slots({
    what: 'bulk requests',
    max: 2,
    share: 1,
    waitMs,
    maxWaiting: MAX_WAITING,
    shareKind: 'unavailable',
  })
  ;[running, begun, most] = [[], [], {}]
  const turns = { slots, ownerOf: (request: FastifyRequest) => Promise.resolve(ownerIn(request)) }
  edge = await startEdge({
    routes: (app) => {
      app.post(
        '/bulk/:owner',
        {
          config: { isPublic: true, bulk: { turns, rowsOf: (body) => (Array.isArray(body) ? body.length : 0) } },
          bodyLimit: 1024 * 1024,
          schema: { body: Type.Array(Type.Unknown(), { maxItems: 500 }), response: responses({ 200: Type.String() }) },
        },
        async (request) => {
          const owner = ownerIn(request)
          const { promise, resolve } = Promise.withResolvers<void>()
          const one = { owner, end: resolve }
          running.push(one)
          begun.push(owner)
          for (const key of [owner, 'all'])
            most[key] = Math.max(most[key] ?? 0, running.filter((other) => key === 'all' || other.owner === key).length)
          await promise
          running.splice(running.indexOf(one), 1)
          if (request.headers['x-fails'] !== undefined) throw new Error('broken')
          return owner
        },
      )
    },
  })
}

beforeEach(() => start(60_000))
afterEach(async () => {
  for (const { end } of running) end()
  await edge[Symbol.asyncDispose]()
})

const send = (owner: string, items: readonly unknown[] = Array.from({ length: MANY }), headers = {}) =>
  fetch(`${edge.url}/bulk/${owner}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(items.map((item) => item ?? 1)),
  })

async function endNext(count: number) {
  await until(() => running.length > 0 && begun.length >= count, `${count} have begun`)
  running[0]?.end()
}

test('one request of an owner runs at a time, two in all, in turns of the owners', async () => {
  const first = send('a')
  await until(() => begun.length === 1, 'the first runs')
  const others = [send('a'), send('a')]
  await until(() => slots.waiting === 2, 'two wait')
  others.push(send('b'))
  await until(() => begun.length === 2, 'another owner runs')
  others.push(send('c'), send('d'))
  await until(() => slots.waiting === 4, 'four wait')
  for (let ended = 0; ended < 6; ended += 1) await endNext(Math.min(6, ended + 2))
  const answers = await Promise.all([first, ...others])
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
  expect(begun.slice(0, 2)).toEqual(['a', 'b'])
  // Those that were never served go before the second request of an owner.
  expect(begun.slice(2, 4).toSorted()).toEqual(['a', 'c'])
  expect(most).toMatchObject({ a: 1, all: 2 })
  expect([slots.taken, slots.waiting]).toEqual([0, 0])
})

test('a large body waits before it is parsed, and an invalid one gives its turn back', async () => {
  const first = send('a')
  await until(() => begun.length === 1, 'the first runs')
  const body = `["${LARGE_TEXT}",`
  const invalid = fetch(`${edge.url}/bulk/a`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  })
  const tooMany = send('a', [...Array.from({ length: 501 }), LARGE_TEXT])
  await until(() => slots.waiting === 2, 'both wait')
  running[0]?.end()
  expect((await first).status).toBe(200)
  expect([(await invalid).status, (await tooMany).status]).toEqual([400, 400])
  expect(begun).toEqual(['a'])
  await until(() => slots.taken === 0, 'the turns are given back')
})

test('small requests have no turn', async () => {
  const first = send('a')
  await until(() => begun.length === 1, 'the first runs')
  const small = send('a', Array.from({ length: MANY - 1 }))
  await endNext(2)
  running[0]?.end()
  expect([(await first).status, (await small).status]).toEqual([200, 200])
})

test('a request that has waited for too long is refused, and may be sent again later', async () => {
  await edge[Symbol.asyncDispose]()
  await start(50)
  const first = send('a')
  await until(() => begun.length === 1, 'the first runs')
  const refused = await send('a')
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '5'])
  expect(await refused.json()).toEqual({
    error: 'unavailable',
    message: 'one domain may have at most 1 bulk requests at a time; try again later',
  })
  running[0]?.end()
  expect((await first).status).toBe(200)
  expect(begun).toEqual(['a'])
})

test('more requests than may wait are refused at once', async () => {
  const sent = [send('a')]
  await until(() => begun.length === 1, 'the first runs')
  for (let count = 1; count <= MAX_WAITING; count += 1) {
    sent.push(send('a'))
    await until(() => slots.waiting === count, 'it waits')
  }
  expect((await send('a')).status).toBe(503)
  for (let ended = 0; ended < sent.length; ended += 1) await endNext(ended + 1)
  expect((await Promise.all(sent)).map(({ status }) => status)).toEqual(sent.map(() => 200))
})

test('a caller that leaves gives its place up while it waits, and keeps its turn while its work runs', async () => {
  const body = JSON.stringify(Array.from({ length: MANY }, () => 1))
  const leaving = () => {
    const socket = connect({ port: edge.port, host: '127.0.0.1' }).on('error', () => undefined)
    socket.write(
      `POST /bulk/a HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    )
    return socket
  }
  const worker = leaving()
  await until(() => begun.length === 1, 'the first runs')
  const waiting = leaving()
  await until(() => slots.waiting === 1, 'the second waits')
  waiting.destroy()
  await until(() => slots.waiting === 0, 'it no longer waits')
  worker.destroy()
  const next = send('a')
  await until(() => slots.waiting === 1, 'the next one waits for the work of the caller that left')
  expect(begun).toEqual(['a'])
  running[0]?.end()
  await endNext(2)
  expect((await next).status).toBe(200)
  expect(slots.taken).toBe(0)
})

test('a failure gives the turn back', async () => {
  const failed = send('a', undefined, { 'x-fails': '1' })
  await endNext(1)
  expect((await failed).status).toBe(500)
  expect(slots.taken).toBe(0)
})
