/** Requests to one operation: valid ones, and such with one thing wrong. Nothing in them is of a certain world yet. */
import fc from 'fast-check'
import type { Arbitrary } from 'fast-check'
import type { Operation, Schema } from './document.ts'
import { HUGE_NUMBER, NASTY_JSON, NASTY_TEXT, reference, valueOf } from './values.ts'
import type { Reference } from './values.ts'

export const CALLERS = ['owner', 'member', 'stranger', 'admin', 'pawn', 'token', 'bound', 'device', 'nobody'] as const
export type CallerName = (typeof CALLERS)[number]

export type Plan = {
  caller: CallerName
  /** Replaces the credentials of the caller. */
  authorization?: string
  path: Record<string, Reference | string>
  query: readonly (readonly [name: string, value: unknown])[]
  /** A raw text goes as it is. */
  body?: { value: unknown } | { raw: string }
  contentType?: string
  headers: Record<string, string>
}

const BODY_LEVELS = 3_000

/** A caller with every permission. Where a path names a device without its domain, only a token that is bound to a domain selects it. */
const ableCaller = (operation: Operation): CallerName =>
  /^\/(?:http\/)?(?:clients|channels|groups|connect|disconnect)\b/.test(operation.path) ? 'bound' : 'owner'

const callers: Arbitrary<CallerName> = fc.oneof(
  { weight: 10, arbitrary: fc.constant('owner' as const) },
  { weight: 4, arbitrary: fc.constant('admin' as const) },
  { weight: 8, arbitrary: fc.constantFrom(...CALLERS) },
)

function paths(operation: Operation): Arbitrary<Record<string, Reference | string>> {
  const names = operation.parameters.filter((parameter) => parameter.in === 'path')
  return fc.record(
    Object.fromEntries(
      names.map(({ name, schema }) => [name, valueOf(schema, name).map((value) => asSegment(value))] as const),
    ),
  )
}

const asSegment = (value: unknown): Reference | string =>
  typeof value === 'object' && value !== null ? (value as Reference) : String(value)

function queries(operation: Operation): Arbitrary<[string, unknown][]> {
  const parameters = operation.parameters.filter((parameter) => parameter.in === 'query')
  const fields = Object.fromEntries(parameters.map(({ name, schema }) => [name, valueOf(schema, name)]))
  const requiredKeys = parameters.filter(({ required }) => required === true).map(({ name }) => name)
  return fc.tuple(fc.record(fields, { requiredKeys }), fc.array(fc.nat(), { maxLength: 3 })).map(([record, picks]) => {
    // All of them at once are hardly ever allowed together: a few.
    const entries = Object.entries(record)
    const chosen = new Set(picks.map((pick) => entries[pick % Math.max(1, entries.length)]?.[0]))
    return entries.filter(([name]) => requiredKeys.includes(name) || chosen.has(name))
  })
}

function bodies(operation: Operation): Arbitrary<Pick<Plan, 'body' | 'contentType'>> {
  const contents = [...operation.bodies]
  if (contents.length === 0) return fc.constant({})
  return fc.oneof(
    ...contents.map(([contentType, schema]) =>
      contentType === 'application/json' || contentType === 'application/senml+json'
        ? bodyOf(operation, schema).map((value) => ({ body: { value }, contentType }))
        : fc.string({ unit: 'binary', maxLength: 40 }).map((raw) => ({ body: { raw }, contentType })),
    ),
  )
}

/** A pack has no schema of its own in the document: its form is RFC 8428. */
const PACK: Schema = {
  type: 'array',
  items: {
    type: 'object',
    properties: Object.fromEntries(
      Object.entries({
        bn: 'string',
        bt: 'number',
        bu: 'string',
        bver: 'integer',
        n: 'string',
        u: 'string',
        v: 'number',
        vs: 'string',
        vb: 'boolean',
        vd: 'string',
        s: 'number',
        t: 'number',
      }).map(([name, type]) => [name, { type }]),
    ),
  },
}

const bodyOf = (operation: Operation, schema: Schema): Arbitrary<unknown> =>
  valueOf(operation.tags.includes('messages') ? PACK : schema)

export function validPlans(operation: Operation): Arbitrary<Plan> {
  const headers = operation.parameters.some((parameter) => parameter.name === 'idempotency-key')
    ? fc
        .option(fc.stringMatching(/^[a-z]{1,8}$/), { nil: undefined })
        .map((key) => (key === undefined ? {} : { 'idempotency-key': key }))
    : fc.constant({})
  return fc
    .tuple(callers, paths(operation), queries(operation), bodies(operation), headers)
    .map(([caller, path, query, body, extra]) => ({ caller, path, query, headers: extra, ...body }))
}

/** Requests of a caller with permission, on their own entities. */
export const ablePlans = (operation: Operation): Arbitrary<Plan> =>
  validPlans(operation).map((plan) => ({ ...(ownOnly(plan) as Plan), caller: ableCaller(operation) }))

function ownOnly(value: unknown): unknown {
  if (isReference(value)) return { ...value, whose: 'own' }
  if (Array.isArray(value)) return value.map(ownOnly)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, ownOnly(item)]))
}

/** One thing of a valid request made wrong, or at least strange. */
export function nearPlans(operation: Operation): Arbitrary<Plan> {
  const changes: ((plan: Plan) => Arbitrary<Plan>)[] = [wrongCredentials, wrongQuery(operation)]
  if (Object.keys(operation.parameters.filter((parameter) => parameter.in === 'path')).length > 0)
    changes.push(wrongPath)
  if (operation.bodies.size > 0) changes.push(wrongBody, wrongBody, wrongBody, wrongContentType)
  else if (operation.method !== 'GET') changes.push(needlessBody)
  return validPlans(operation).chain((plan) => fc.oneof(...changes.map((change) => change(plan))))
}

const wrongCredentials = (plan: Plan): Arbitrary<Plan> =>
  fc
    .constantFrom(
      '',
      'Bearer',
      'Bearer ',
      'bearer x',
      'Bearer a.b.c',
      'Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.',
      'Bearer pat_garbage_x',
      'Basic OjpA',
      'Basic %%%',
      'Client ',
      'Client x',
      `Bearer ${'x'.repeat(9_000)}`,
      'Digest a="b"',
    )
    .map((authorization) => ({ ...plan, authorization }))

const wrongQuery =
  (operation: Operation) =>
  (plan: Plan): Arbitrary<Plan> => {
    const names = operation.parameters.filter((parameter) => parameter.in === 'query').map(({ name }) => name)
    const name = fc.constantFrom(...names, 'limit', 'offset', 'unknown', '__proto__', 'a[b]')
    const value = fc.oneof(
      NASTY_TEXT,
      fc.constantFrom('0', '-1', '101', '1.5', '1e3', 'true', 'TRUE', 'asc', '2026-01-01T00:00:00Z'),
    )
    return fc.oneof(
      fc.tuple(name, value).map(([key, text]) => ({
        ...plan,
        query: [...plan.query.filter(([own]) => own !== key), [key, text] as const],
      })),
      fc
        .tuple(name, value)
        .map(([key, text]) => ({ ...plan, query: [...plan.query, [key, text] as const, [key, text] as const] })),
    )
  }

const wrongPath = (plan: Plan): Arbitrary<Plan> =>
  fc
    .tuple(
      fc.constantFrom(...Object.keys(plan.path)),
      fc.oneof(
        NASTY_TEXT.map((text) => text.slice(0, 400)),
        reference('domain').map(({ ref }) => ({ ref, whose: 'malformed' as const })),
        fc.constantFrom('unknown' as const, 'foreign' as const),
      ),
    )
    .map(([name, value]) => {
      const before = plan.path[name]
      const whose = value === 'unknown' || value === 'foreign' ? value : undefined
      const after: Reference | string = whose !== undefined && typeof before === 'object' ? { ...before, whose } : value
      return { ...plan, path: { ...plan.path, [name]: after } }
    })

const wrongContentType = (plan: Plan): Arbitrary<Plan> =>
  fc
    .constantFrom(
      'text/plain',
      'application/xml',
      'application/jsonx',
      'application/json; charset=utf-16',
      'multipart/form-data',
      ';',
      '',
      'application/json;charset=utf-8',
    )
    .map((contentType) => ({ ...plan, contentType }))

const needlessBody = (plan: Plan): Arbitrary<Plan> =>
  fc
    .tuple(
      fc.constantFrom('', '{}', '{', 'null', 'text'),
      fc.constantFrom('application/json', 'text/plain', 'application/x-www-form-urlencoded'),
    )
    .map(([raw, contentType]) => ({ ...plan, body: { raw }, contentType }))

const RAW_BODIES = [
  '',
  ' ',
  '{',
  'nul',
  '[',
  '"\\ud800"',
  '{"a":1e400}',
  '{"__proto__":{"a":1}}',
  '{"constructor":{"prototype":{"a":1}}}',
  '{"name":"a","name":"b"}',
  '\0',
  '\ufeff{}',
  `${'['.repeat(BODY_LEVELS)}${']'.repeat(BODY_LEVELS)}`,
  `{"metadata":${'{"a":'.repeat(BODY_LEVELS)}1${'}'.repeat(BODY_LEVELS)}}`,
]

function wrongBody(plan: Plan): Arbitrary<Plan> {
  const value = plan.body !== undefined && 'value' in plan.body ? plan.body.value : undefined
  const whole = fc.oneof(
    fc.constantFrom(...RAW_BODIES).map((raw) => ({ ...plan, body: { raw } })),
    NASTY_JSON.map((body) => ({ ...plan, body: { value: body } })),
  )
  if (typeof value !== 'object' || value === null) return whole
  return fc.oneof({ weight: 4, arbitrary: changed(value).map((body) => ({ ...plan, body: { value: body } })) }, whole)
}

/** The same JSON with one place of it missing, replaced or added. */
function changed(value: unknown): Arbitrary<unknown> {
  if (Array.isArray(value)) {
    const here = fc.oneof(
      fc.constantFrom<unknown>([], [...value, ...value]),
      NASTY_JSON.map((item) => [...value, item]),
    )
    if (value.length === 0) return here
    return fc.oneof(
      here,
      fc.nat(value.length - 1).chain((at) => changed(value[at]).map((item) => value.with(at, item))),
    )
  }
  if (typeof value !== 'object' || value === null || 'ref' in value) return NASTY_JSON
  const keys = Object.keys(value)
  const added = fc.tuple(fc.oneof(NASTY_TEXT, fc.constantFrom('metadata', 'name', 'id', 'status', 'tags')), NASTY_JSON)
  const more = added.map(([key, item]) => ({ ...value, [key === '__proto__' ? 'proto' : key]: item }))
  if (keys.length === 0) return more
  return fc.oneof(
    more,
    fc
      .constantFrom(...keys)
      .chain((key) => changed((value as Record<string, unknown>)[key]).map((item) => ({ ...value, [key]: item }))),
    fc.constantFrom(...keys).chain((key) => NASTY_JSON.map((item) => ({ ...value, [key]: item }))),
    fc.constantFrom(...keys).map((key) => Object.fromEntries(Object.entries(value).filter(([name]) => name !== key))),
  )
}

/** JSON text with references filled in; numbers that JSON.stringify would refuse are put in as text. */
export function formatBody(body: NonNullable<Plan['body']>, idOf: (reference: Reference) => string): string {
  if ('raw' in body) return body.raw
  const text = JSON.stringify(body.value, (_key, item: unknown) => (isReference(item) ? idOf(item) : item)) ?? ''
  return text.replaceAll(JSON.stringify(HUGE_NUMBER), '1e400')
}

export const isReference = (value: unknown): value is Reference =>
  typeof value === 'object' && value !== null && 'ref' in value && 'whose' in value
