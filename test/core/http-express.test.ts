/**
 * The express lane against Node's HTTP server: whatever bytes come over a connection, in whatever pieces, the answers are those of an
 * edge without a lane, and the same bodies have arrived.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ServiceError } from '#core/errors/index.ts'
import { NoBody, addExpressRoute, responses } from '#core/http/index.ts'
import type { ExpressHead, ExpressRoute, ExpressTaken, HttpApp } from '#core/http/index.ts'
import { until } from '../harness/until.ts'
import { openRaw, startEdge } from './edge.ts'
import type { TestEdge } from './edge.ts'

/** What requests left, and those that wait to be let go. */
type Kept = { readonly bodies: string[]; readonly release: (() => void)[] }
type Site = TestEdge & Kept

const PATH = /^\/lane\/(\w+)$/

/** What the route does: `bad` is refused, `later` waits until it is let go, everything else is kept. */
async function keep(site: Kept, name: string, body: Buffer): Promise<void> {
  if (name === 'bad') throw new ServiceError('unprocessable', 'ünfit for the läne')
  if (name === 'later') await new Promise<void>((resolve) => site.release.push(resolve))
  site.bodies.push(`${name} ${body.toString('latin1')}`)
}

async function startSite({
  hasLane,
  requestDeadlineMs,
}: {
  hasLane: boolean
  requestDeadlineMs?: number
}): Promise<Site> {
  const kept: Kept = { bodies: [], release: [] }
  const known = new Set<string>()
  const nameOf = ({ url, headers }: ExpressHead) =>
    headers['content-type'] === 'text/plain' ? PATH.exec(url ?? '')?.[1] : undefined
  const takenBy = (name: string): ExpressTaken => ({
    name: 'POST /lane/:name',
    work: (body) => keep(kept, name, body),
  })
  const route: ExpressRoute = {
    take(head) {
      const name = nameOf(head)
      return name !== undefined && known.has(name) ? takenBy(name) : undefined
    },
    learn(head) {
      const name = nameOf(head)
      if (name === undefined || name === 'foreign') return undefined
      return Promise.resolve().then(() => {
        if (name === 'failing') throw new Error('away')
        if (name !== 'unkept') known.add(name)
        return takenBy(name)
      })
    },
  }
  const edge = await startEdge({
    ...(requestDeadlineMs === undefined ? {} : { requestDeadlineMs }),
    routes: (app) => {
      registerRoute(app, (name, body) => keep(kept, name, body))
      if (hasLane) addExpressRoute(app, route)
    },
  })
  return Object.assign(edge, kept)
}

function registerRoute(app: HttpApp, work: (name: string, body: Buffer) => Promise<void>): void {
  void app.register((scope, _options, done) => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, parsed) => parsed(null, body))
    scope.post(
      '/lane/:name',
      {
        config: { isPublic: true },
        validatorCompiler: () => (value: unknown) => ({ value }),
        schema: { body: {}, response: responses({ 202: NoBody }, 'unprocessable') },
      },
      async (request, reply) => {
        await work((request.params as { name: string }).name, (request.body as Buffer | undefined) ?? Buffer.alloc(0))
        return await reply.code(202).send()
      },
    )
    done()
  })
}

let lane: Site
let plain: Site
beforeAll(async () => {
  ;[lane, plain] = await Promise.all([startSite({ hasLane: true }), startSite({ hasLane: false })])
})
afterAll(() => Promise.all([lane[Symbol.asyncDispose](), plain[Symbol.asyncDispose]()]))

const post = (name: string, body: string, more = '') =>
  `POST /lane/${name} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n${more}Content-Length: ${Buffer.byteLength(body, 'latin1')}\r\n\r\n${body}`

/** Without what differs from one request to the next, and with the headers of each answer in one order. */
function normal(text: string): string[] {
  return text
    .replaceAll(/date: [^\r]+/gi, 'date: now')
    .replaceAll(/(x-request-id: |"request_id":")[0-9a-f-]{36}/gi, '$1id')
    .split(/(?=HTTP\/1\.1 \d)/)
    .map((answer) => {
      const [head = '', ...body] = answer.split('\r\n\r\n')
      const [line = '', ...headers] = head.split('\r\n')
      return [line, ...headers.map((header) => header.toLowerCase()).toSorted(), '', ...body].join('\n')
    })
}

type Talk = { answers: string[]; bodies: string[] }

/** Sends the pieces one after the other, ends, and gives what came back until the other side closed. */
async function talk(site: Site, pieces: readonly Buffer[]): Promise<Talk> {
  const { socket, closed } = openRaw(site.port)
  for (const piece of pieces) {
    await new Promise<void>((resolve) => socket.write(piece, () => resolve()))
    // Its own packet, read by its own call.
    if (pieces.length > 1) await new Promise<void>((resolve) => setImmediate(resolve))
  }
  socket.end()
  const answers = normal(await closed)
  // What was read before the connection closed is worked at for some turns more; this one is read after it.
  const last = openRaw(site.port)
  last.socket.end(post('last', ''))
  await last.closed
  return { answers, bodies: site.bodies.splice(0).filter((body) => body !== 'last ') }
}

async function expectAlike(bytes: Buffer, cuts: readonly number[] = []): Promise<void> {
  const places = [0, ...cuts.filter((cut) => cut > 0 && cut < bytes.length).toSorted((a, b) => a - b), bytes.length]
  const pieces = places.slice(1).map((end, index) => bytes.subarray(places[index], end))
  const [ours, nodes] = [await talk(lane, pieces), await talk(plain, pieces)]
  // Bytes that are no request make Node's server drop the answers to whole requests in front of them; the lane gives them first.
  const dropped = nodes.answers.at(-1)?.includes(UNREADABLE) === true ? ours.answers.length - nodes.answers.length : 0
  expect(ours.answers.slice(dropped)).toEqual(nodes.answers)
  for (const answer of ours.answers.slice(0, dropped)) expect(answer).toMatch(/^HTTP\/1\.1 (202|422)/)
  expectSameBodies(ours, nodes)
}

/** Whether a request that follows one whose answer closes the connection is still read is a matter of pieces. */
function expectSameBodies(ours: Talk, nodes: Talk): void {
  const common =
    isClosing(ours) || isClosing(nodes) ? Math.min(ours.bodies.length, nodes.bodies.length) : Number.POSITIVE_INFINITY
  expect(ours.bodies.slice(0, common)).toEqual(nodes.bodies.slice(0, common))
  for (const { answers, bodies } of [ours, nodes])
    expect(bodies.length).toBeGreaterThanOrEqual(answers.filter((answer) => answer.startsWith('HTTP/1.1 202')).length)
}

const isClosing = ({ answers }: Talk) => answers.some((answer) => answer.includes('connection: close'))
const UNREADABLE = 'the request is not valid HTTP'

const HEAD = 'POST /lane/a HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n'

describe('the same bytes are answered alike', () => {
  test.each([
    ['a plain request', post('a', 'one')],
    ['two, one behind the other', post('a', 'one') + post('b', 'two')],
    ['an empty body', post('a', '')],
    ['a refusal', post('bad', 'x')],
    ['a refusal between two others', post('a', '1') + post('bad', 'x') + post('a', '2')],
    ['one that cannot be looked up', post('failing', 'x')],
    ['another route afterwards', `${post('a', 'one')}GET /pumps/1 HTTP/1.1\r\nHost: x\r\n\r\n`],
    ['another route before', `GET /pumps/1 HTTP/1.1\r\nHost: x\r\n\r\n${post('a', 'one')}`],
    ['a kind that is not for the lane', post('foreign', 'x') + post('a', 'one')],
    ['another media type', post('a', 'x').replace('text/plain', 'text/html')],
    ['a body above the bound', post('a', 'x'.repeat(1025))],
    ['a body at the bound', post('a', 'x'.repeat(1024))],
    ['HTTP/1.0', post('a', 'x').replace('HTTP/1.1', 'HTTP/1.0')],
    ['HTTP/1.2', post('a', 'x').replace('HTTP/1.1', 'HTTP/1.2')],
    ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['no HTTP at all', '\x16\x03\x01\x02\x00\x01\x00\x01'],
    ['an empty line first', `\r\n${post('a', 'x')}`],
    ['an empty line between', `${post('a', 'x')}\r\n${post('a', 'y')}`],
    ['bytes behind the body', `${post('a', 'x')}garbage`],
    ['a method in small letters', post('a', 'x').replace('POST', 'post')],
    ['two spaces behind the method', post('a', 'x').replace('POST ', 'POST  ')],
    ['a target with a space', post('a', 'x').replace('/lane/a', '/lane/a b')],
    ['a whole address as target', post('a', 'x').replace('/lane/a', 'http://x/lane/a')],
    ['a target with bytes above ASCII', post('\xe4', 'x')],
    ['a fragment', post('a#b', 'x')],
    ['no host', `POST /lane/a HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx`],
    ['an empty host', `${HEAD.replace('Host: x', 'Host:')}Content-Length: 1\r\n\r\nx`],
    ['two hosts', post('a', 'x', 'Host: y\r\n')],
    ['no length', `${HEAD}\r\n`],
    ['two lengths', post('a', 'x', 'Content-Length: 1\r\n')],
    ['two lengths that differ', post('a', 'xy', 'Content-Length: 1\r\n')],
    ['a list of lengths', `${HEAD}Content-Length: 1, 1\r\n\r\nx`],
    ['a length with a sign', `${HEAD}Content-Length: +1\r\n\r\nx`],
    ['a negative length', `${HEAD}Content-Length: -1\r\n\r\nx`],
    ['a length in hexadecimal', `${HEAD}Content-Length: 0x1\r\n\r\nx`],
    ['a length with zeros in front', `${HEAD}Content-Length: 0001\r\n\r\nx`],
    ['a length beyond every number', `${HEAD}Content-Length: 99999999999999999999999\r\n\r\nx`],
    ['an empty length', `${HEAD}Content-Length:\r\n\r\n`],
    ['chunks', `${HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n`],
    ['chunks and a length', post('a', '1\r\nx\r\n0\r\n\r\n', 'Transfer-Encoding: chunked\r\n')],
    ['a coding that nobody knows', post('a', 'x', 'Transfer-Encoding: identity\r\n')],
    ['Expect', post('a', 'x', 'Expect: 100-continue\r\n')],
    ['Upgrade', post('a', 'x', 'Connection: Upgrade\r\nUpgrade: websocket\r\n')],
    ['h2c', post('a', 'x', 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n')],
    ['Connection: close', post('a', 'x', 'Connection: close\r\n') + post('a', 'y')],
    ['Connection: Keep-Alive', post('a', 'x', 'Connection: Keep-Alive\r\n') + post('a', 'y')],
    ['an id of its own', post('a', 'x', 'X-Request-Id: mine\r\n')],
    ['a page of elsewhere', post('a', 'x', 'Origin: https://elsewhere.example\r\n')],
    ['a space before the colon', post('a', 'x', 'X-Note : y\r\n')],
    ['a folded header', post('a', 'x', 'X-Note: y\r\n z\r\n')],
    ['a header without a colon', post('a', 'x', 'note\r\n')],
    ['a header without a name', post('a', 'x', ': y\r\n')],
    ['a header named __proto__', post('a', 'x', '__proto__: y\r\n')],
    ['a header with a NUL', post('a', 'x', 'X-Note: a\0b\r\n')],
    ['a header with a lone CR', post('a', 'x', 'X-Note: a\rb\r\n')],
    ['a header with a lone LF', post('a', 'x', 'X-Note: a\nContent-Length: 9\r\n')],
    ['a header with DEL', post('a', 'x', 'X-Note: a\x7fb\r\n')],
    ['a header with bytes above ASCII', post('a', 'x', 'X-Note: \xe4\xff\r\n')],
    ['spaces and tabs round a value', post('a', 'x').replace('text/plain', ' \t text/plain \t ')],
    ['a no-break space behind a value', post('a', 'x').replace('text/plain', 'text/plain\xa0')],
    ['lines that end in LF', post('a', 'x').replaceAll('\r\n', '\n')],
    ['a head above 16 KiB', post('a', 'x', `X-Note: ${'y'.repeat(17_000)}\r\n`)],
    ['a head without end', `${HEAD}X-Note: ${'y'.repeat(20_000)}`],
    ['half a head', HEAD],
    ['half a body', `${HEAD}Content-Length: 5\r\n\r\nxy`],
    ['nothing', ''],
  ])('%s', async (_name, text) => {
    const bytes = Buffer.from(text, 'latin1')
    await expectAlike(bytes)
    await expectAlike(bytes, [bytes.length >> 1])
    await expectAlike(bytes, [1, bytes.indexOf('\r\n') + 1, bytes.indexOf('\r\n\r\n') + 2, bytes.length - 1])
  })
})

/** How often Node's server saw a request of the site. */
function routed(site: Site): () => number {
  const { app } = site
  const routing = app.routing.bind(app)
  let count = 0
  app.routing = (request, response) => {
    count += 1
    routing(request, response)
  }
  return () => count
}

const occurrences = (text: string, part: string) => text.split(part).length - 1

test('requests for the lane never reach the router, not even the first, which nobody knew', async () => {
  await using site = await startSite({ hasLane: true })
  const count = routed(site)
  const { answers, bodies } = await talk(site, [Buffer.from(post('first', '1') + post('first', '2'))])
  expect([answers.length, bodies, count()]).toEqual([2, ['first 1', 'first 2'], 0])
})

test('what could be looked up and not be kept is looked up for each request, and stays in the lane', async () => {
  await using site = await startSite({ hasLane: true })
  const count = routed(site)
  const requests = post('unkept', '1') + post('unkept', '2') + post('a', '3')
  const { answers, bodies } = await talk(site, [Buffer.from(requests)])
  expect([answers.length, bodies, count()]).toEqual([3, ['unkept 1', 'unkept 2', 'a 3'], 0])
})

test('answers come in the order of the requests, also where a later one is done first', async () => {
  await using site = await startSite({ hasLane: true })
  const { socket, received } = openRaw(site.port)
  socket.write(`${post('later', '1')}${post('bad', '2')}GET /pumps/1 HTTP/1.1\r\nHost: x\r\n\r\n`)
  await until(() => site.release.length === 1, 'the first waits')
  expect(received()).toBe('')
  site.release.pop()?.()
  await until(() => received().includes('"pump"'), 'all are answered')
  expect([...received().matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status)).toEqual(['202', '422', '200'])
  socket.destroy()
})

test('of one connection sixteen requests wait at most, and none is lost', async () => {
  await using site = await startSite({ hasLane: true })
  const { socket, received } = openRaw(site.port)
  socket.write(Array.from({ length: 50 }, (_, index) => post('later', String(index))).join(''))
  await until(() => site.release.length === 16, 'sixteen wait')
  while (occurrences(received(), 'HTTP/1.1 202') < 50) {
    expect(site.release.length).toBeLessThanOrEqual(16)
    site.release.shift()?.()
    await new Promise<void>((resolve) => setImmediate(resolve))
  }
  expect(site.bodies).toEqual(Array.from({ length: 50 }, (_, index) => `later ${index}`))
  socket.destroy()
})

test('a stop lets running requests end, answers them with Connection: close, and closes idle connections', async () => {
  const site = await startSite({ hasLane: true })
  const idle = openRaw(site.port)
  const busy = openRaw(site.port)
  const served = openRaw(site.port)
  served.socket.write(post('a', '1'))
  busy.socket.write(post('later', '1') + post('later', '2'))
  await until(() => site.release.length === 2 && received202(served) === 1, 'both run')
  const stopped = site.listeners.stop()
  await Promise.all([idle.closed, served.closed])
  for (const release of site.release) release()
  const text = await busy.closed
  expect(occurrences(text, 'HTTP/1.1 202')).toBe(2)
  expect(text.slice(0, text.lastIndexOf('HTTP/1.1'))).not.toContain('Connection: close')
  expect(text.slice(text.lastIndexOf('HTTP/1.1'))).toContain('Connection: close')
  await stopped
})

test('a stop cuts off who is not done at its deadline', async () => {
  const site = await startSite({ hasLane: true })
  const { socket, closed } = openRaw(site.port)
  socket.write(post('later', '1'))
  await until(() => site.release.length === 1, 'it runs')
  await site.listeners.stop(50)
  expect(await closed).toBe('')
})

test.each([
  ['nothing', ''],
  ['half a head', HEAD],
  ['half a body', `${HEAD}Content-Length: 5\r\n\r\nxy`],
])('who sends %s is told at the deadline that the request did not arrive in time', async (_name, text) => {
  await using site = await startSite({ hasLane: true, requestDeadlineMs: 100 })
  const { socket, closed } = openRaw(site.port)
  if (text !== '') socket.write(text)
  expect(await closed).toContain('the request did not arrive in time')
})

test('a caller who breaks off harms nobody, whatever of his was on its way', async () => {
  await using site = await startSite({ hasLane: true })
  const gone = openRaw(site.port)
  gone.socket.write(post('later', '1'))
  await until(() => site.release.length === 1, 'it runs')
  gone.socket.resetAndDestroy()
  site.release.pop()?.()
  await until(() => site.bodies.length === 1, 'it was kept')
  const half = openRaw(site.port)
  await new Promise<void>((resolve) => half.socket.write(post('a', 'xy').slice(0, -1), () => resolve()))
  half.socket.resetAndDestroy()
  expect((await talk(site, [Buffer.from(post('a', 'y'))])).answers[0]).toContain('202')
})

test('a caller who takes no answers is not read from without end', async () => {
  await using site = await startSite({ hasLane: true })
  const { socket, received } = openRaw(site.port)
  socket.pause()
  const refusals = Buffer.from(post('bad', 'x').repeat(1000))
  let isAccepted = true
  // The kernel's buffers of both directions, and ours, are full at some time.
  for (let round = 0; round < 2000 && isAccepted; round++) {
    isAccepted = socket.write(refusals) || (await drained(socket))
  }
  expect(isAccepted).toBe(false)
  expect(received()).toBe('')
  socket.resume()
  await until(() => occurrences(received(), 'HTTP/1.1 422') > 5000, 'it goes on')
  socket.destroy()
})

/** Whether what was written is gone within a moment. */
function drained(socket: { once(event: 'drain', listener: () => void): unknown }): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), 500)
    socket.once('drain', () => {
      clearTimeout(timer)
      resolve(true)
    })
  })
}

function received202({ received }: { received: () => string }): number {
  return occurrences(received(), 'HTTP/1.1 202')
}
