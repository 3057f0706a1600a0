/**
 * Asks every route in every way that its callers get wrong, and remembers the statuses it answered. What a route can
 * answer is found by asking, not by reading what it declares.
 */
import type { LightMyRequestResponse, RouteOptions } from 'fastify'
import type { HttpApp } from '#http/index.ts'
import { newId } from '#core/ids.ts'

export type Answer = {
  method: string
  url: string
  what: string
  status: number
  body: string
  declared: readonly string[]
}

export type Callers = {
  /** Owns `domainId` and is the platform administrator. */
  admin: string
  /** A user who is no member of anything. */
  stranger: string
  /** A member of `domainId` without any right in it. */
  domainId: string
}

type Probe = {
  what: string
  headers?: Record<string, string>
  domain?: string
  payload?: string | Buffer
  query?: string
  isFor?: Body
}
type Body = 'with a body' | 'any'

const JSON_TYPE = { 'content-type': 'application/json' }
/** Above the default limit of a body; routes with a limit of their own are not asked with more. */
const TOO_LARGE = Buffer.alloc(1024 * 1024 + 1, 0x20)
const BODY_METHODS = new Set(['POST', 'PUT', 'PATCH'])

function probesOf({ admin, stranger, domainId }: Callers): Probe[] {
  const asAdmin = { authorization: admin }
  return [
    { what: 'no credentials' },
    { what: 'a wrong token', headers: { authorization: 'Bearer wrong' } },
    { what: 'a wrong secret', headers: { authorization: 'Client wrong' } },
    { what: 'another scheme', headers: { authorization: 'Digest x' } },
    { what: 'unknown ids', headers: asAdmin },
    { what: 'unknown ids and an empty object', headers: { ...asAdmin, ...JSON_TYPE }, payload: '{}' },
    {
      what: 'a domain of its own and an unknown id',
      headers: { ...asAdmin, ...JSON_TYPE },
      domain: domainId,
      payload: '{}',
    },
    {
      what: "a stranger in somebody else's domain",
      headers: { authorization: stranger, ...JSON_TYPE },
      domain: domainId,
      payload: '{}',
    },
    { what: 'a stranger and unknown ids', headers: { authorization: stranger } },
    {
      what: 'broken JSON',
      headers: { ...asAdmin, ...JSON_TYPE },
      domain: domainId,
      payload: '{"a":',
      isFor: 'with a body',
    },
    { what: 'null', headers: { ...asAdmin, ...JSON_TYPE }, domain: domainId, payload: 'null', isFor: 'with a body' },
    { what: 'an array', headers: { ...asAdmin, ...JSON_TYPE }, domain: domainId, payload: '[]', isFor: 'with a body' },
    {
      what: 'a NUL character',
      headers: { ...asAdmin, ...JSON_TYPE },
      domain: domainId,
      payload: '{"name":"a\\u0000"}',
      isFor: 'with a body',
    },
    {
      what: 'another content type',
      headers: { ...asAdmin, 'content-type': 'text/csv' },
      domain: domainId,
      payload: 'a,b',
      isFor: 'with a body',
    },
    {
      what: 'a body above the limit',
      headers: { ...asAdmin, ...JSON_TYPE },
      domain: domainId,
      payload: TOO_LARGE,
      isFor: 'with a body',
    },
    { what: 'a query key twice', headers: asAdmin, domain: domainId, query: '?x=1&x=2' },
    { what: 'limits out of range', headers: asAdmin, domain: domainId, query: '?limit=0&offset=-1' },
    { what: 'a limit that is no number', headers: asAdmin, domain: domainId, query: '?limit=ten' },
    { what: 'a NUL character in the query', headers: asAdmin, domain: domainId, query: '?name=%00' },
    { what: 'a foreign Origin', headers: { ...asAdmin, origin: 'https://elsewhere.example' }, domain: domainId },
  ]
}

/** Every probe at every route, one after the other. */
export async function probeRoutes(app: HttpApp, routes: readonly RouteOptions[], callers: Callers): Promise<Answer[]> {
  const answers: Answer[] = []
  for (const route of routes) {
    for (const method of [route.method].flat().filter((one) => one !== 'HEAD')) {
      const declared = Object.keys((route.schema?.response ?? {}) as object)
      for (const probe of probesOf(callers)) {
        if (probe.isFor === 'with a body' && !BODY_METHODS.has(method)) continue
        const url = `${fillIn(route.url, probe.domain)}${probe.query ?? ''}`
        const response = await app.inject({
          method: method as 'GET',
          url,
          headers: probe.headers ?? {},
          payloadAsStream: true,
          ...(probe.payload === undefined || !BODY_METHODS.has(method) ? {} : { payload: probe.payload }),
        })
        answers.push({
          method,
          url: route.url,
          what: probe.what,
          status: response.statusCode,
          body: await bodyOf(response),
          declared,
        })
      }
    }
  }
  return answers
}

/** A stream of events has no end to wait for. */
async function bodyOf(response: LightMyRequestResponse): Promise<string> {
  const stream = response.stream()
  if (String(response.headers['content-type']).startsWith('text/event-stream')) {
    stream.destroy()
    return ''
  }
  const chunks: Buffer[] = []
  for await (const chunk of stream) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks).toString()
}

function fillIn(path: string, domainId = newId()): string {
  return path
    .replaceAll(':domain_id', domainId)
    .replaceAll(/:[a-z_]+/g, () => newId())
    .replace('*', 'a/b')
}
