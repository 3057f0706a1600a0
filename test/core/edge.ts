/** The HTTP edge on a port of its own with the routes of a test, and ways to talk to it below HTTP clients. */
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { Writable } from 'node:stream'
import { Type } from 'typebox'
import { ServiceError } from '#core/errors/index.ts'
import { createHttpApp, createMetrics, listen, responses } from '#http/index.ts'
import type { EdgeOptions, HttpApp, Listeners } from '#http/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { Readiness } from '#core/readiness/index.ts'

export const BUILD = { version: '1.2.3', commit: 'abc', buildTime: '2026-11-21T00:00:00Z' }

const NewPump = Type.Object({ name: Type.String({ minLength: 1 }), size: Type.Optional(Type.Number()) })
const Pump = Type.Object({ id: Type.String(), name: Type.String() })
const Query = Type.Object({
  limit: Type.Integer({ minimum: 1, maximum: 100, default: 10 }),
  name: Type.Optional(Type.String()),
})

export type TestEdge = AsyncDisposable & {
  readonly app: HttpApp
  readonly listeners: Listeners
  readonly port: number
  readonly url: string
  /** Every log line so far. */
  readonly lines: readonly Record<string, unknown>[]
}

export type TestEdgeOptions = Partial<EdgeOptions> & {
  requestDeadlineMs?: number
  routes?: (app: HttpApp) => void
}

export async function startEdge(options: TestEdgeOptions = {}): Promise<TestEdge> {
  const lines: Record<string, unknown>[] = []
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      for (const line of chunk.toString().trim().split('\n')) lines.push(JSON.parse(line) as Record<string, unknown>)
      done()
    },
  })
  const logger = createLogger({ name: 'test', level: 'info', stream })
  const app = createHttpApp({
    logger,
    health: { build: BUILD, metrics: createMetrics(), readiness: new Readiness(), serviceOf: (port) => `port ${port}` },
    maxBodyBytes: 1024,
    corsOrigins: [],
    trustProxy: [],
    authenticate: (request) =>
      request.headers.authorization === 'Bearer good'
        ? Promise.resolve()
        : Promise.reject(new ServiceError('unauthenticated', 'missing or invalid bearer')),
    ...options,
  })
  app.post(
    '/pumps',
    { config: { isPublic: true }, schema: { body: NewPump, response: responses({ 201: Pump }) } },
    (request, reply) => {
      void reply.code(201)
      return { id: '1', name: request.body.name, secret: 'never declared' }
    },
  )
  app.get(
    '/pumps',
    { config: { isPublic: true }, schema: { querystring: Query, response: responses({ 200: Query }) } },
    (request) => request.query,
  )
  app.get(
    '/pumps/:id',
    { config: { isPublic: true }, schema: { response: responses({ 200: Pump }, 'not_found') } },
    (request) => ({
      id: (request.params as { id: string }).id,
      name: 'pump',
    }),
  )
  app.get('/endless', { exposeHeadRoute: false, config: { isPublic: true } }, () => new Promise(() => undefined))
  app.post('/pumps/:id/start', { config: { isPublic: true }, schema: { response: responses({ 200: Pump }) } }, () => ({
    id: '1',
    name: 'started',
  }))
  app.get('/private', { schema: { response: responses({ 200: Pump }, 'unauthenticated') } }, () => ({
    id: '1',
    name: 'private',
  }))
  app.get('/broken', { config: { isPublic: true }, schema: { response: responses({ 200: Pump }) } }, () => {
    throw new Error('the password of the database is hunter2')
  })
  options.routes?.(app)
  const listeners = await listen(app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'SKEIN_HTTP_PORT' }],
    logger,
    ...(options.requestDeadlineMs === undefined ? {} : { requestDeadlineMs: options.requestDeadlineMs }),
  })
  const port = listeners.ports[0] ?? 0
  return {
    app,
    listeners,
    port,
    url: `http://127.0.0.1:${port}`,
    lines,
    [Symbol.asyncDispose]: () => listeners.stop(0),
  }
}

/** A connection whose bytes the test writes itself. */
export function openRaw(port: number): { socket: Socket; received: () => string; closed: Promise<string> } {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  let text = ''
  socket.on('data', (chunk) => {
    text += chunk.toString()
  })
  socket.on('error', () => undefined)
  const closed = new Promise<string>((resolve) => {
    socket.on('end', () => socket.end())
    socket.on('close', () => resolve(text))
  })
  return { socket, received: () => text, closed }
}

/** Status, headers and parsed body of a raw answer. */
export function parseAnswer(text: string): { status: number; headers: string; body: Record<string, unknown> } {
  const [head = '', body = ''] = text.split('\r\n\r\n')
  return {
    status: Number(head.split(' ')[1]),
    headers: head.toLowerCase(),
    body: JSON.parse(body) as Record<string, unknown>,
  }
}
