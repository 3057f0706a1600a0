/**
 * The express lane: requests that one route is asked for thousands of times a second, answered without the router, its hooks
 * and its streams. A lane takes only what it knows to the last header; anything else goes to the route, which answers
 * alike, so that nobody can tell which of both it was.
 */
import { randomUUID } from 'node:crypto'
import type { Logger } from '../../logging/index.ts'
import { monotonicMs } from '../../time.ts'
import type { HttpApp } from '../edge.ts'
import { answerOf } from '../error-handler.ts'
import type { Metrics } from '../metrics.ts'

/** What the lane looks at of a request; names of headers are in small letters. */
export type ExpressHead = {
  readonly url?: string | undefined
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
}

/** What is done with the whole body; its end is the answer 202. */
export type ExpressWork = (body: Buffer) => Promise<void>

/** A request that the lane has taken. `name` is what the metrics call it. */
export type ExpressTaken = { readonly name: string; readonly work: ExpressWork }

export type ExpressRoute = {
  /**
   * Takes a POST by its head, whose caller it has recognised and found authorised, all from memory; undefined leaves it to
   * the route.
   */
  take(head: ExpressHead): ExpressTaken | undefined
  /**
   * Takes it by what has to be looked up first, which need not be kept for the next one. Rejects where the caller is refused or
   * nothing can be looked up; undefined: `take` would not take it in any case.
   */
  learn(head: ExpressHead): Promise<ExpressTaken> | undefined
}

export type ExpressLane = {
  readonly logger: Logger
  readonly metrics: Metrics
  readonly maxBodyBytes: number
  /** Headers that every answer of the edge has. */
  readonly headers: Readonly<Record<string, string>>
  readonly route: ExpressRoute
}

export type ExpressAnswer = {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

type Opened = Omit<ExpressLane, 'route'> & { route: ExpressRoute | undefined }

const lanes = new WeakMap<HttpApp, Opened>()

export function openExpressLane(app: HttpApp, options: Omit<ExpressLane, 'route'>): void {
  lanes.set(app, { ...options, route: undefined })
}

/** Gives the app its express route; there is room for one. */
export function addExpressRoute(app: HttpApp, route: ExpressRoute): void {
  const lane = lanes.get(app)
  if (lane === undefined || lane.route !== undefined) throw new Error('the app has no express lane, or it is taken')
  lane.route = route
}

/** The lane of the app; undefined where no route uses it. */
export function expressLaneOf(app: HttpApp): ExpressLane | undefined {
  const lane = lanes.get(app)
  return lane?.route === undefined ? undefined : { ...lane, route: lane.route }
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

/** How long the body of such a request is; undefined: the request is the router's. */
export function expressLength({ maxBodyBytes }: ExpressLane, { headers }: ExpressHead): number | undefined {
  const text = headers['content-length']
  if (typeof text !== 'string' || !LENGTH.test(text)) return undefined
  for (const name of SPECIAL_HEADERS) if (headers[name] !== undefined) return undefined
  const length = Number(text)
  return length > maxBodyBytes ? undefined : length
}

const NO_BODY = { 'Content-Length': '0' }

/** Does the work with the body, counts the request and gives its answer. */
export function perform(
  { logger, metrics, headers }: ExpressLane,
  { name, work }: ExpressTaken,
  body: Buffer,
  send: (answer: ExpressAnswer) => void,
): void {
  const beganMs = monotonicMs()
  const id = randomUUID()
  const answer = (status: number, own: Readonly<Record<string, string>>, text: string) => {
    send({ status, headers: { 'X-Request-Id': id, ...headers, ...own }, body: text })
    metrics.countRequest('http', name, String(status), (monotonicMs() - beganMs) / 1000)
  }
  const refuse = (error: unknown) => {
    const refusal = answerOf(error, id, logger)
    const text = JSON.stringify(refusal.body)
    const length = String(Buffer.byteLength(text))
    answer(refusal.status, { ...refusal.headers, 'Content-Type': 'application/json', 'Content-Length': length }, text)
  }
  let done: Promise<void>
  try {
    done = work(body)
  } catch (error) {
    refuse(error)
    return
  }
  done.then(() => answer(202, NO_BODY, ''), refuse)
}
