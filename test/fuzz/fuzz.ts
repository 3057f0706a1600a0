/** Sends generated requests to one operation and holds every answer to what the document says of it. */
import { maxHeaderSize } from 'node:http'
import fc from 'fast-check'
import { faultsOfAnswer } from './conformance.ts'
import type { Received } from './conformance.ts'
import type { Operation } from './document.ts'
import { ablePlans, formatBody, isReference, nearPlans, validPlans } from './request.ts'
import type { Plan } from './request.ts'
import type { World } from './world.ts'

/** The same requests in every run, unless a seed is given: `FUZZ_SEED=7 FUZZ_RUNS=100 vitest run --project fuzz`. */
export const SEED = Number(process.env['FUZZ_SEED'] ?? 20_260_101)
export const RUNS_PER_OPERATION = Number(process.env['FUZZ_RUNS'] ?? 8)

const ANSWER_DEADLINE_MS = 60_000
/** Failed logins of the fuzzer shall not slow down those of the world. */
const REMOTE_ADDRESS = '198.51.100.7'
/** After these the next request of the operation would find nothing. */
const TAKES_AWAY =
  /^DELETE|\/(?:disable|freeze|delete|delete-all|unassign|unshare|disconnect|revoke|secret|reset|remove)$/

type Sent = { method: string; url: string; headers: Record<string, string>; payload?: string }

/** How often each operation gave each status; so that the output of a run shows its coverage. */
const tally = new Map<string, Map<number, number>>()

export function tallyText(): string {
  const sums = new Map<number, number>()
  for (const counts of tally.values())
    for (const [status, count] of counts) sums.set(status, (sums.get(status) ?? 0) + count)
  const unsuccessful = [...tally].filter(([, counts]) => [...counts.keys()].every((status) => status >= 300))
  const list = [...sums].toSorted(([left], [right]) => left - right).map(([status, count]) => `${status} x ${count}`)
  return [
    `fuzz: seed ${SEED}, ${tally.size} operations, ${list.join(', ')}`,
    `without a success: ${unsuccessful.map(([name]) => name).join(', ') || 'none'}`,
  ].join('\n')
}

export async function fuzz(operation: Operation, world: World): Promise<void> {
  const isRead = operation.method === 'GET'
  let isWhole = isRead
  const plans = fc.oneof(
    { weight: 3, arbitrary: ablePlans(operation) },
    { weight: 2, arbitrary: validPlans(operation) },
    { weight: 5, arbitrary: nearPlans(operation) },
  )
  await fc.assert(
    fc.asyncProperty(plans, async (plan) => {
      if (!isWhole) await world.repair()
      const status = await check(operation, world, plan)
      isWhole = isRead || status >= 300 || !TAKES_AWAY.test(operation.name)
    }),
    {
      seed: SEED ^ hashOf(operation.name),
      numRuns: RUNS_PER_OPERATION,
      // Requests change the world, so a smaller one proves nothing: the first failure is the report.
      endOnFailure: true,
      includeErrorInReport: true,
    },
  )
}

function isDecodable(url: string): boolean {
  try {
    decodeURIComponent(url)
    return true
  } catch {
    return false
  }
}

async function check(operation: Operation, world: World, plan: Plan): Promise<number> {
  const request = fillIn(operation, world, plan)
  const answer = operation.isStream ? await askStream(world, request) : await ask(world, request)
  const counts = tally.get(operation.name) ?? new Map<number, number>()
  tally.set(operation.name, counts.set(answer.status, (counts.get(answer.status) ?? 0) + 1))
  // The reader of HTTP refuses such a head before there is a route. `inject` has no such reader.
  if (answer.status === 431 && headBytesOf(request) > maxHeaderSize) return answer.status
  // A path that is no UTF-8 has no route either, so it is refused in the common form, whatever the form of its operation is.
  if (answer.status === 400 && operation.name.includes('/iceberg/v1/') && !isDecodable(request.url))
    return answer.status
  const faults = faultsOf(operation, world, plan, answer)
  if (faults.length === 0) return answer.status
  const { headers, ...rest } = request
  const shown = {
    ...rest,
    contentType: headers['content-type'],
    caller: plan.caller,
    authorization: plan.authorization,
  }
  throw new Error(
    [
      `FUZZ_SEED=${SEED} ${operation.name}`,
      ...faults.map((fault) => `  ${fault}`),
      `  request: ${JSON.stringify(shown).slice(0, 2_000)}`,
      `  answer: ${answer.status} ${answer.contentType} ${answer.text.slice(0, 2_000)}`,
    ].join('\n'),
  )
}

const headBytesOf = ({ method, url, headers }: Sent): number =>
  Object.entries(headers).reduce((sum, header) => sum + header.join(': \r\n').length, `${method} ${url}`.length)

function fillIn(operation: Operation, world: World, plan: Plan): Sent {
  const path = operation.path.replaceAll(/\{(?<name>[^}]+)\}/g, (_whole, name: string) => {
    const value = plan.path[name] ?? ''
    const text = isReference(value) ? world.idOf(value, plan) : value
    // Without a segment it would be another path.
    return encodePart(text === '' || /^\.+$/.test(text) ? 'x' : text)
  })
  const query = plan.query
    .map(
      ([name, value]) =>
        `${encodePart(name)}=${encodePart(isReference(value) ? world.idOf(value, plan) : textOf(value))}`,
    )
    .join('&')
  const authorization = plan.authorization ?? world.authorizationOf(plan.caller)
  const payload =
    plan.body === undefined ? undefined : formatBody(plan.body, (reference) => world.idOf(reference, plan))
  return {
    method: operation.method,
    url: query === '' ? path : `${path}?${query}`,
    headers: {
      ...plan.headers,
      ...(authorization === undefined ? {} : { authorization }),
      ...(plan.contentType === undefined ? {} : { 'content-type': plan.contentType }),
    },
    ...(payload === undefined ? {} : { payload }),
  }
}

const textOf = (value: unknown): string =>
  Array.isArray(value) ? value.map(textOf).join(',') : typeof value === 'string' ? value : JSON.stringify(value)

/** Percent-encoded; what is no Unicode text goes as the broken UTF-8 that a careless client would send. */
const encodePart = (text: string): string => (text.isWellFormed() ? encodeURIComponent(text) : '%ed%a0%80')

async function ask(world: World, request: Sent): Promise<Received> {
  const answered = world.api.app.inject({
    ...request,
    method: request.method as 'GET',
    remoteAddress: REMOTE_ADDRESS,
  })
  const deadline = Promise.withResolvers<never>()
  const timer = setTimeout(
    () => deadline.reject(new Error(`no answer within ${ANSWER_DEADLINE_MS} ms: ${request.method} ${request.url}`)),
    ANSWER_DEADLINE_MS,
  )
  try {
    const { statusCode, headers, body } = await Promise.race([answered, deadline.promise])
    return { status: statusCode, contentType: String(headers['content-type'] ?? ''), text: body }
  } finally {
    clearTimeout(timer)
  }
}

/** A stream is closed as soon as it has begun. */
async function askStream(world: World, request: Sent): Promise<Received> {
  const leave = new AbortController()
  const signal = AbortSignal.any([leave.signal, AbortSignal.timeout(ANSWER_DEADLINE_MS)])
  const response = await fetch(world.base + request.url, { headers: request.headers, signal })
  const contentType = response.headers.get('content-type') ?? ''
  if (response.status === 200) {
    leave.abort()
    return { status: 200, contentType, text: '' }
  }
  return { status: response.status, contentType, text: await response.text() }
}

function faultsOf(operation: Operation, world: World, plan: Plan, answer: Received): string[] {
  const faults = faultsOfAnswer(operation, answer)
  if (!world.mayMeetCanary(plan.caller) && answer.text.includes(world.canary)) faults.push('shows what is in the vault')
  return faults
}

/** FNV-1a, so that an operation has the same requests whatever others there are. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5
  for (const char of text) hash = Math.imul(hash ^ (char.codePointAt(0) ?? 0), 0x01000193)
  return hash | 0
}
