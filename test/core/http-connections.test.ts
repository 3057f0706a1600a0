/**
 * Connections: whatever bytes come over one, in whatever pieces, the answers are the same, they come in the order of the requests, and
 * what comes in faster than it is answered waits.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ServiceError } from '#core/errors/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { HttpApp } from '#http/index.ts'
import { until } from '../harness/until.ts'
import { openRaw, startEdge } from './edge.ts'
import type { TestEdge } from './edge.ts'

/** What requests left, and those that wait to be let go. */
type Kept = { readonly bodies: string[]; readonly release: (() => void)[] }
type Site = TestEdge & Kept

/** What the route does: `bad` is refused, `later` waits until it is let go, everything else is kept. */
async function keep(site: Kept, name: string, body: Buffer): Promise<void> {
  if (name === 'bad') throw new ServiceError('unprocessable', 'ünfit for the route')
  if (name === 'later') await new Promise<void>((resolve) => site.release.push(resolve))
  site.bodies.push(`${name} ${body.toString('latin1')}`)
}

async function startSite(options: { requestDeadlineMs?: number } = {}): Promise<Site> {
  const kept: Kept = { bodies: [], release: [] }
  const edge = await startEdge({
    ...options,
    routes: (app) => registerRoute(app, (name, body) => keep(kept, name, body)),
  })
  return Object.assign(edge, kept)
}

function registerRoute(app: HttpApp, work: (name: string, body: Buffer) => Promise<void>): void {
  void app.register((scope, _options, done) => {
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, parsed) => parsed(null, body))
    scope.post(
      '/kept/:name',
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

let common: Site
beforeAll(async () => {
  common = await startSite()
})
afterAll(() => common[Symbol.asyncDispose]())

const post = (name: string, body: string, more = '') =>
  `POST /kept/${name} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n${more}Content-Length: ${Buffer.byteLength(body, 'latin1')}\r\n\r\n${body}`

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

function piecesOf(bytes: Buffer, cuts: readonly number[]): Buffer[] {
  const places = [0, ...cuts.filter((cut) => cut > 0 && cut < bytes.length).toSorted((a, b) => a - b), bytes.length]
  return places.slice(1).map((end, index) => bytes.subarray(places[index], end))
}

/** Answers that are dropped with what is no request behind them are not looked at where they were given. */
function expectAlike(whole: Talk, cut: Talk): void {
  const dropped =
    whole.answers.at(-1)?.includes(UNREADABLE) === true ? Math.max(0, cut.answers.length - whole.answers.length) : 0
  expect(cut.answers.slice(dropped)).toEqual(whole.answers)
  for (const answer of cut.answers.slice(0, dropped)) expect(answer).toMatch(/^HTTP\/1\.1 (202|422)/)
  expectSameBodies(cut, whole)
}

/** Whether a request that follows one whose answer closes the connection is still read is a matter of pieces. */
function expectSameBodies(one: Talk, other: Talk): void {
  const length =
    isClosing(one) || isClosing(other) ? Math.min(one.bodies.length, other.bodies.length) : Number.POSITIVE_INFINITY
  expect(one.bodies.slice(0, length)).toEqual(other.bodies.slice(0, length))
  for (const { answers, bodies } of [one, other])
    expect(bodies.length).toBeGreaterThanOrEqual(answers.filter((answer) => answer.startsWith('HTTP/1.1 202')).length)
}

const isClosing = ({ answers }: Talk) => answers.some((answer) => answer.includes('connection: close'))
const UNREADABLE = 'invalid HTTP request'

const HEAD = 'POST /kept/a HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n'

describe('the same bytes get the same response, whole and in pieces', () => {
  test.each<[name: string, text: string, ...statuses: number[]]>([
    ['a plain request', post('a', 'one'), 202],
    ['two, one behind the other', post('a', 'one') + post('b', 'two'), 202, 202],
    ['an empty body', post('a', ''), 202],
    ['a refusal', post('bad', 'x'), 422],
    ['a refusal between two others', post('a', '1') + post('bad', 'x') + post('a', '2'), 202, 422, 202],
    ['another route afterwards', `${post('a', 'one')}GET /pumps/1 HTTP/1.1\r\nHost: x\r\n\r\n`, 202, 200],
    ['another route before', `GET /pumps/1 HTTP/1.1\r\nHost: x\r\n\r\n${post('a', 'one')}`, 200, 202],
    ['another media type', post('a', 'x').replace('text/plain', 'text/html'), 202],
    ['a body above the bound', post('a', 'x'.repeat(1025)), 413],
    ['a body at the bound', post('a', 'x'.repeat(1024)), 202],
    ['HTTP/1.0', post('a', 'x').replace('HTTP/1.1', 'HTTP/1.0'), 202],
    ['HTTP/1.2', post('a', 'x').replace('HTTP/1.1', 'HTTP/1.2'), 400],
    ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],
    ['no HTTP at all', '\x16\x03\x01\x02\x00\x01\x00\x01', 400],
    ['an empty line first', `\r\n${post('a', 'x')}`, 202],
    ['an empty line between', `${post('a', 'x')}\r\n${post('a', 'y')}`, 202, 202],
    ['bytes behind the body', `${post('a', 'x')}garbage`, 400],
    ['a method in small letters', post('a', 'x').replace('POST', 'post'), 400],
    ['two spaces behind the method', post('a', 'x').replace('POST ', 'POST  '), 202],
    ['a target with a space', post('a', 'x').replace('/kept/a', '/kept/a b'), 400],
    ['a whole address as target', post('a', 'x').replace('/kept/a', 'http://x/kept/a'), 202],
    ['a target with bytes above ASCII', post('\xe4', 'x'), 400],
    ['a fragment', post('a#b', 'x'), 202],
    ['no host', `POST /kept/a HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx`, 400],
    ['an empty host', `${HEAD.replace('Host: x', 'Host:')}Content-Length: 1\r\n\r\nx`, 202],
    ['two hosts', post('a', 'x', 'Host: y\r\n'), 400],
    ['no length', `${HEAD}\r\n`, 202],
    ['two lengths', post('a', 'x', 'Content-Length: 1\r\n'), 400],
    ['two lengths that differ', post('a', 'xy', 'Content-Length: 1\r\n'), 400],
    ['a list of lengths', `${HEAD}Content-Length: 1, 1\r\n\r\nx`, 400],
    ['a length with a sign', `${HEAD}Content-Length: +1\r\n\r\nx`, 400],
    ['a negative length', `${HEAD}Content-Length: -1\r\n\r\nx`, 400],
    ['a length in hexadecimal', `${HEAD}Content-Length: 0x1\r\n\r\nx`, 400],
    ['a length with zeros in front', `${HEAD}Content-Length: 0001\r\n\r\nx`, 202],
    ['a length beyond every number', `${HEAD}Content-Length: 99999999999999999999999\r\n\r\nx`, 400],
    ['an empty length', `${HEAD}Content-Length:\r\n\r\n`, 400],
    ['chunks', `${HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n`, 202],
    ['chunks and a length', post('a', '1\r\nx\r\n0\r\n\r\n', 'Transfer-Encoding: chunked\r\n'), 400],
    ['a coding that nobody knows', post('a', 'x', 'Transfer-Encoding: identity\r\n'), 400],
    ['Expect', post('a', 'x', 'Expect: 100-continue\r\n'), 100, 202],
    ['Upgrade', post('a', 'x', 'Connection: Upgrade\r\nUpgrade: websocket\r\n'), 202],
    ['h2c', post('a', 'x', 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n'), 202],
    ['Connection: close', post('a', 'x', 'Connection: close\r\n') + post('a', 'y'), 400],
    ['Connection: Keep-Alive', post('a', 'x', 'Connection: Keep-Alive\r\n') + post('a', 'y'), 202, 202],
    ['an id of its own', post('a', 'x', 'X-Request-Id: mine\r\n'), 202],
    ['a page of elsewhere', post('a', 'x', 'Origin: https://elsewhere.example\r\n'), 403],
    ['a space before the colon', post('a', 'x', 'X-Note : y\r\n'), 400],
    ['a folded header', post('a', 'x', 'X-Note: y\r\n z\r\n'), 400],
    ['a header without a colon', post('a', 'x', 'note\r\n'), 400],
    ['a header without a name', post('a', 'x', ': y\r\n'), 400],
    ['a header named __proto__', post('a', 'x', '__proto__: y\r\n'), 202],
    ['a header with a NUL', post('a', 'x', 'X-Note: a\0b\r\n'), 400],
    ['a header with a lone CR', post('a', 'x', 'X-Note: a\rb\r\n'), 400],
    ['a header with a lone LF', post('a', 'x', 'X-Note: a\nContent-Length: 9\r\n'), 400],
    ['a header with DEL', post('a', 'x', 'X-Note: a\x7fb\r\n'), 400],
    ['a header with bytes above ASCII', post('a', 'x', 'X-Note: \xe4\xff\r\n'), 202],
    ['spaces and tabs round a value', post('a', 'x').replace('text/plain', ' \t text/plain \t '), 202],
    ['a no-break space behind a value', post('a', 'x').replace('text/plain', 'text/plain\xa0'), 202],
    ['lines that end in LF', post('a', 'x').replaceAll('\r\n', '\n'), 400],
    ['a head above 16 KiB', post('a', 'x', `X-Note: ${'y'.repeat(17_000)}\r\n`), 413],
    ['a head without end', `${HEAD}X-Note: ${'y'.repeat(20_000)}`, 413],
    ['half a head', HEAD, 400],
    ['half a body', `${HEAD}Content-Length: 5\r\n\r\nxy`, 400],
    ['nothing', ''],
  ])('%s', async (_name, text, ...statuses) => {
    const bytes = Buffer.from(text, 'latin1')
    const whole = await talk(common, [bytes])
    expect(statusesOf(whole)).toEqual(statuses)
    expectAlike(whole, await talk(common, piecesOf(bytes, [bytes.length >> 1])))
    const everywhere = [1, bytes.indexOf('\r\n') + 1, bytes.indexOf('\r\n\r\n') + 2, bytes.length - 1]
    expectAlike(whole, await talk(common, piecesOf(bytes, everywhere)))
  })
})

const statusesOf = ({ answers }: Talk) =>
  answers.filter((answer) => answer.startsWith('HTTP')).map((answer) => Number(answer.split(' ')[1]))

const occurrences = (text: string, part: string) => text.split(part).length - 1

test('responses arrive in the order of the requests, also if a later one is ready first', async () => {
  await using site = await startSite()
  const { socket, received } = openRaw(site.port)
  socket.write(`${post('later', '1')}${post('bad', '2')}GET /pumps/1 HTTP/1.1\r\nHost: x\r\n\r\n`)
  await until(() => site.release.length === 1, 'the first waits')
  expect(received()).toBe('')
  site.release.pop()?.()
  await until(() => received().includes('"pump"'), 'all are answered')
  expect([...received().matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status)).toEqual(['202', '422', '200'])
  socket.destroy()
})

test('at most sixteen requests of one connection wait, and none is lost', async () => {
  await using site = await startSite()
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

test('a stop lets running requests finish, answers them with Connection: close, and closes idle connections', async () => {
  const site = await startSite()
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

test('a stop disconnects callers that have not finished by its deadline', async () => {
  const site = await startSite()
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
])('a caller that sends %s gets a timeout error at the deadline', async (_name, text) => {
  await using site = await startSite({ requestDeadlineMs: 100 })
  const { socket, closed } = openRaw(site.port)
  if (text !== '') socket.write(text)
  expect(await closed).toContain('the request did not arrive in time')
})

test('a caller that disconnects affects no other caller, whatever requests it had open', async () => {
  await using site = await startSite()
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

test('a caller that reads no responses is eventually no longer read from', async () => {
  await using site = await startSite()
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

test('a caller that sends more than it reads is no longer read from, and gets all responses in the end', async () => {
  await using site = await startSite()
  const { socket, received } = openRaw(site.port)
  const request = Buffer.from(post('later', 'x'.repeat(1000)).repeat(100))
  socket.write(request)
  await until(() => site.release.length === 16, 'sixteen are handled')
  let sent = 100
  let isAccepted = true
  for (let round = 0; round < 2000 && isAccepted; round++) {
    isAccepted = socket.write(request) || (await drained(socket))
    sent += 100
  }
  expect(isAccepted).toBe(false)
  expect(site.release.length).toBe(16)
  while (site.bodies.length < sent) {
    expect(site.release.length).toBeLessThanOrEqual(16)
    for (const release of site.release.splice(0)) release()
    await new Promise<void>((resolve) => setImmediate(resolve))
  }
  await until(() => occurrences(received(), 'HTTP/1.1 202') === sent, 'all are answered')
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
