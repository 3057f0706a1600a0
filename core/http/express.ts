/**
 * The express lane: requests that one route is asked for thousands of times a second, answered without the router, its hooks
 * and its streams. A lane takes only what it knows to the last header; anything else goes to the route, which answers
 * alike, so that nobody can tell which of both it was.
 */
import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Logger } from '../logging/index.ts'
import { monotonicMs } from '../time.ts'
import { answerOf } from './error-handler.ts'
import type { HttpApp } from './edge.ts'
import type { Metrics } from './metrics.ts'

/** What is done with the whole body; its end is the answer 202. */
export type ExpressWork = (body: Buffer) => Promise<void>

export type ExpressRoute = {
  /**
   * Takes a request by its head, whose caller it has recognised and found authorised, all from memory; undefined leaves it
   * to the route. `name` is what the metrics call it.
   */
  take(request: IncomingMessage): { name: string; work: ExpressWork } | undefined
}

type Lane = {
  logger: Logger
  metrics: Metrics
  maxBodyBytes: number
  /** Headers that every answer of the edge has. */
  headers: Readonly<Record<string, string>>
  route: ExpressRoute | undefined
}

const lanes = new WeakMap<HttpApp, Lane>()

export function openExpressLane(app: HttpApp, options: Omit<Lane, 'route'>): void {
  lanes.set(app, { ...options, route: undefined })
}

/** Gives the app its express route; there is room for one. */
export function addExpressRoute(app: HttpApp, route: ExpressRoute): void {
  const lane = lanes.get(app)
  if (lane === undefined || lane.route !== undefined) throw new Error('the app has no express lane, or it is taken')
  lane.route = route
}

/** What the edge or Node looks at, beside what the route itself looks at: with any of them it is the router's. */
const SPECIAL_HEADERS = [
  'content-encoding',
  'expect',
  'origin',
  'transfer-encoding',
  'upgrade',
  'x-request-id',
] as const
const LENGTH = /^\d{1,9}$/

/** The handler of the lane; false: the router is to handle the request. */
export function expressHandler(app: HttpApp): (request: IncomingMessage, response: ServerResponse) => boolean {
  const lane = lanes.get(app)
  if (lane?.route === undefined) return () => false
  const { route, maxBodyBytes } = lane
  return (request, response) => {
    if (request.method !== 'POST') return false
    const { headers } = request
    const length = headers['content-length']
    if (length === undefined || !LENGTH.test(length) || Number(length) > maxBodyBytes) return false
    for (const name of SPECIAL_HEADERS) if (headers[name] !== undefined) return false
    const taken = route.take(request)
    if (taken === undefined) return false
    serve(lane, request, response, taken)
    return true
  }
}

function serve(
  { logger, metrics, headers }: Lane,
  request: IncomingMessage,
  response: ServerResponse,
  { name, work }: { name: string; work: ExpressWork },
): void {
  const beganMs = monotonicMs()
  const id = randomUUID()
  const answer = (status: number, own: Record<string, string>, body: string | undefined) => {
    response.writeHead(status, { 'X-Request-Id': id, ...headers, ...own })
    response.end(body)
    metrics.countRequest('http', name, String(status), (monotonicMs() - beganMs) / 1000)
  }
  const refuse = (error: unknown) => {
    const refusal = answerOf(error, id, logger)
    const body = JSON.stringify(refusal.body)
    answer(
      refusal.status,
      {
        ...refusal.headers,
        'Content-Type': 'application/json',
        'Content-Length': String(Buffer.byteLength(body)),
      },
      body,
    )
  }
  let first: Buffer | undefined
  let rest: Buffer[] | undefined
  request.on('data', (chunk: Buffer) => {
    if (first === undefined) first = chunk
    else (rest ??= [first]).push(chunk)
  })
  request.on('end', () => {
    let done: Promise<void>
    try {
      done = work(rest === undefined ? (first ?? Buffer.alloc(0)) : Buffer.concat(rest))
    } catch (error) {
      refuse(error)
      return
    }
    done.then(() => answer(202, NO_BODY, undefined), refuse)
  })
}

const NO_BODY = { 'Content-Length': '0' }
