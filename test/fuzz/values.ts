/** Values for a schema: such as it allows, and such as come near. Ids stand as references until a world fills them in. */
import fc from 'fast-check'
import type { Arbitrary } from 'fast-check'
import type { Schema } from './document.ts'

/** Whose record is meant: the caller's tenant, another tenant, nobody's, or no id at all. */
export type Reference = { ref: string; whose: 'own' | 'foreign' | 'unknown' | 'malformed' }

/** A placeholder in JSON text for the number 1e400, which JSON.stringify does not write. */
export const HUGE_NUMBER = '\u0001 1e400 \u0001'

/** Which record a property or parameter of this name refers to. */
const KINDS: Readonly<Record<string, string>> = {
  domain_id: 'domain',
  optional_domain_id: 'domain',
  client_id: 'client',
  client_ids: 'client',
  subjects: 'client',
  client: 'client',
  channel_id: 'channel',
  channel_ids: 'channel',
  objects: 'channel',
  channel: 'channel',
  group_id: 'group',
  group_ids: 'group',
  group: 'group',
  parent_id: 'other group',
  parent_group_id: 'group',
  parentid: 'group',
  children_ids: 'other group',
  user_id: 'user',
  user_ids: 'user',
  user: 'user',
  subject: 'user',
  ownerid: 'user',
  invited_by: 'user',
  invitee_user_id: 'user',
  member_ids: 'user',
  members: 'user',
  optional_members: 'user',
  role_id: 'role',
  pat_id: 'pat',
  scopes_id: 'scope',
  key_id: 'key',
  session_id: 'session',
  entity_id: 'client',
  task_id: 'task',
  run_id: 'run',
  worker_id: 'worker',
}

/** Words that mean something where a schema only says `string`. */
const WORDS: Readonly<Record<string, readonly string[]>> = {
  actions: ['read', 'update', 'delete', 'fly', 'm_read'],
  optional_actions: ['read', 'update', 'manage_role', 'fly'],
  types: ['publish', 'Subscribe', 'm_write', 'listen'],
  relation: ['editor', 'Viewer', 'guest', 'administrator', 'owner'],
  entity_type: ['client', 'channel', 'group', 'domain', 'clients', 'tree'],
  operation: ['read', 'create', 'client.create', 'list', 'update'],
  duration: ['24h', '1h30m', '0s', '-1h', '900000h', 'soon'],
  email: ['somebody@example.com', 'no address', 'a@b'],
  entity: ['client:00000000-0000-4000-8000-000000000000', 'domain', ':'],
  action: ['read', 'update', 'client_read', 'fly'],
  metadata: ['{}', '{"a":1}', '{"a":{"b":[null]}}', '[]', '{', '"', '{"\\u0000":1}'],
  interval: ['1s', '90s', '1 hour', '1h30m', '15 minutes', 'often', '0s'],
  aggregation: ['max', 'AVG', 'count', 'min,max,avg', 'min,min', ',', 'mode'],
  comparator: ['eq', 'lt', 'ge', 'about'],
  alias: ['a-plant', '1st', 'users'],
  route: ['a-route', '1st'],
  order: ['name', 'created_at', 'updated_at', 'id', 'nothing', "name'; --"],
}

/** Text that has broken parsers, databases and logs. */
export const NASTY_TEXT: Arbitrary<string> = fc.oneof(
  fc.constantFrom(
    '',
    ' ',
    '\0',
    'a\0b',
    '\ud800',
    'x\udfff',
    '\u202e\u0000',
    '%',
    '%%_\\',
    "'; DROP TABLE users; --",
    '../../etc/passwd',
    '__proto__',
    'ÿ'.repeat(300),
    '😀'.repeat(40),
    'x'.repeat(1025),
    'x'.repeat(20_000),
    '0',
    '-0',
    'NaN',
    'null',
    '1e400',
    '99999999999999999999',
  ),
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.string({ unit: 'grapheme', maxLength: 60 }),
)

/** JSON of a wrong kind, or too much of it. */
export const NASTY_JSON: Arbitrary<unknown> = fc.oneof(
  NASTY_TEXT,
  fc.constantFrom<unknown>(null, true, 0, -1, 1.5, 2 ** 53, -(2 ** 63), 1e308, HUGE_NUMBER, [], {}, [null], [[[]]], {
    a: { b: { c: {} } },
  }),
  fc.integer({ min: 1, max: 3 }).map((levels) => nested(levels * 150)),
  fc.constantFrom(101, 1_000, 10_001).map((length) => Array.from({ length }, () => 'x')),
  fc.jsonValue({ maxDepth: 3 }),
)

function nested(levels: number): unknown {
  let value: unknown = 1
  for (let level = 0; level < levels; level++) value = level % 2 === 0 ? [value] : { a: value }
  return value
}

/** The caller's own record mostly. */
export const reference = (ref: string): Arbitrary<Reference> =>
  fc
    .oneof(
      { weight: 8, arbitrary: fc.constant('own' as const) },
      fc.constantFrom('foreign' as const, 'unknown' as const),
    )
    .map((whose) => ({ ref, whose }))

/** Values that the schema allows; `name` is the property or parameter that holds it. */
export function valueOf(schema: Schema, name = ''): Arbitrary<unknown> {
  const kind = KINDS[name.toLowerCase()]
  if (kind !== undefined && (schema.type === undefined || schema.type === 'string')) return reference(kind)
  if (schema.const !== undefined) return fc.constant(schema.const)
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum)
  if (schema.anyOf !== undefined) return fc.oneof(...schema.anyOf.map((branch) => valueOf(branch, name)))
  switch (schema.type) {
    case 'string':
      return textOf(schema, name)
    case 'integer':
      return fc.integer({ min: schema.minimum ?? -5, max: Math.min(schema.maximum ?? 1_000_000, 2 ** 31 - 1) })
    case 'number':
      return fc.double({ min: schema.minimum ?? -1e6, max: schema.maximum ?? 1e6, noNaN: true })
    case 'boolean':
      return fc.boolean()
    case 'null':
      return fc.constant(null)
    case 'array': {
      const minLength = schema.minItems ?? 0
      return fc.array(valueOf(schema.items ?? {}, name), {
        minLength,
        maxLength: Math.max(minLength, Math.min(schema.maxItems ?? 3, 3)),
      })
    }
    case 'object':
      return objectOf(schema)
    default:
      return fc.jsonValue({ maxDepth: 3 })
  }
}

function textOf(schema: Schema, name: string): Arbitrary<unknown> {
  const words = WORDS[name]
  if (words !== undefined) return fc.constantFrom(...words)
  if (schema.pattern !== undefined) return fc.stringMatching(new RegExp(schema.pattern))
  const minLength = schema.minLength ?? 0
  const maxLength = Math.min(schema.maxLength ?? 24, 24)
  return fc.oneof(
    fc.string({
      unit: fc.constantFrom('a', 'b', 'c', 'd', 'h', '-', '0', '7'),
      minLength: Math.max(1, minLength),
      maxLength: Math.max(1, maxLength),
    }),
    fc.string({ unit: 'grapheme', minLength, maxLength: Math.max(minLength, Math.floor(maxLength / 2)) }),
  )
}

function objectOf(schema: Schema): Arbitrary<unknown> {
  const { properties } = schema
  if (properties === undefined)
    return fc.dictionary(fc.string({ maxLength: 12 }), fc.jsonValue({ maxDepth: 3 }), { maxKeys: 4 })
  const fields = Object.fromEntries(Object.entries(properties).map(([key, field]) => [key, valueOf(field, key)]))
  return fc.record(fields, { requiredKeys: schema.required ?? [] })
}
