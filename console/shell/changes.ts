/** Records of the journal in words. Pure. */
import { formatJson } from '../api/json.ts'
import { counted } from '../design/display.tsx'

type Item = { operation: string; attributes?: { [name: string]: unknown } }

const VERBS: Readonly<Record<string, string>> = {
  create: 'created',
  update: 'changed',
  remove: 'deleted',
  delete: 'deleted',
  enable: 'enabled',
  disable: 'disabled',
  connect: 'connected',
  disconnect: 'disconnected',
  send: 'sent',
  mail: 'mailed',
  accept: 'accepted',
  reject: 'rejected',
  confirm: 'confirmed',
  refuse: 'refused',
  add: 'added',
  issue: 'issued',
  renew: 'renewed',
  refresh: 'refreshed',
  reset: 'reset',
  revoke: 'revoked',
  rotate: 'rotated',
  verify: 'verified',
  start: 'started',
  stop: 'stopped',
  drain: 'drained',
  resume: 'resumed',
  clear: 'cleared',
  end: 'ended',
  change: 'changed',
  raise: 'raised',
  unsilence: 'no longer silenced',
  escalate: 'escalated',
  acknowledge: 'acknowledged',
  unacknowledge: 'no longer acknowledged',
  assign: 'assigned',
  comment: 'commented',
  deliver: 'delivered',
  answer: 'answered',
  late: 'answered too late',
  cancel: 'cancelled',
  expire: 'expired',
  expire_soon: 'expires soon',
  seek: 'moved',
  issue_token: 'signed in',
  refused_token: 'was refused a login',
  refresh_token_reused: 'used a refresh token twice',
  set_parent: 'moved to a group',
  remove_parent: 'taken out of its group',
}

/** "deleted" is of the subject; a part of it is removed. */
const OF_PARTS: Readonly<Record<string, string>> = { ...VERBS, remove: 'removed', delete: 'removed' }

/** `update_tags`: "tags changed". */
function verbText(verb: string): string {
  const known = VERBS[verb]
  if (known !== undefined) return known
  const [first = '', ...part] = verb.split('_')
  const done = OF_PARTS[first]
  return part.length === 0 || done === undefined ? verb.replaceAll('_', ' ') : `${part.join(' ')} ${done}`
}

const NOUNS: Readonly<Record<string, string>> = {
  api_key: 'API key',
  cert: 'Certificate',
  client_state: 'State of client',
  mqtt: 'MQTT session',
  pat: 'Personal access token',
}
const idsOf = (value: unknown) => (Array.isArray(value) ? value.length : 0)

/** A change of many entities at once: "150 clients created", "20 clients connected to 1 channel". */
function describeMany({ operation, attributes = {} }: Item): string | undefined {
  const [subject = '', verb = ''] = operation.split('.')
  const [clients, channels] = [idsOf(attributes['client_ids']), idsOf(attributes['channel_ids'])]
  if (clients > 0 && channels > 0 && (verb === 'connect' || verb === 'disconnect'))
    return `${counted(clients, 'client')} ${verbText(verb)} ${verb === 'connect' ? 'to' : 'from'} ${counted(channels, 'channel')}`
  const many = idsOf(attributes['ids'])
  if (many === 0) return undefined
  // "state of 3 clients changed"
  if (subject === 'client_state') return `State of ${counted(many, 'client')} ${verbText(verb)}`
  return `${counted(many, subject.replaceAll('_', ' '))} ${verbText(verb)}`
}

/** The name that a record has of its subject. An alarm is called by its rule. */
export function nameIn({ attributes = {} }: Item): string | undefined {
  const after = attributes['after'] as { name?: unknown } | undefined
  const before = attributes['before'] as { name?: unknown } | undefined
  return [
    attributes['rule_name'],
    attributes['name'],
    after?.name,
    before?.name,
    attributes['role_name'],
    attributes['username'],
    attributes['subscriber_id'],
  ].find((one): one is string => typeof one === 'string' && one !== '')
}

/** `client.update` of a client named pump: "Client pump changed". `known`: the name of the subject today, where the record has none. */
export function describeChange(item: Item, known?: string): string {
  const { operation } = item
  const many = describeMany(item)
  if (many !== undefined) return many
  const [subject = '', ...rest] = operation.split('.')
  const between = rest.slice(0, -1).join(' ')
  const name = nameIn(item) ?? known
  const noun = NOUNS[subject] ?? `${subject[0]?.toUpperCase() ?? ''}${subject.slice(1).replaceAll('_', ' ')}`
  // An invitation is known by the role that it is for.
  const shown = subject === 'invitation' && name !== undefined ? `as ${name}` : name
  return [noun, between, shown, verbText(rest.at(-1) ?? '')]
    .filter((part) => part !== '' && part !== undefined)
    .join(' ')
}

export type Difference = { readonly field: string; readonly before?: string; readonly after?: string }

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The fields of objects inside are fields of their own: `metadata.floor`. */
function flat(value: unknown, path: string): [string, unknown][] {
  if (!isRecord(value) || Object.keys(value).length === 0) return [[path, value]]
  return Object.entries(value).flatMap(([key, inner]) => flat(inner, path === '' ? key : `${path}.${key}`))
}

const shown = (value: unknown) =>
  value === undefined || value === null || value === ''
    ? undefined
    : typeof value === 'string'
      ? value
      : formatJson(value)

/** What a change did to each field. What stayed the same is left out. */
export function differenceOf({ before, after }: { before?: unknown; after?: unknown }): Difference[] {
  const [old, now] = [
    new Map(isRecord(before) ? flat(before, '') : []),
    new Map(isRecord(after) ? flat(after, '') : []),
  ]
  return [...new Set([...old.keys(), ...now.keys()])].flatMap((field) => {
    const [was, is] = [shown(old.get(field)), shown(now.get(field))]
    if (was === is) return []
    return [{ field, ...(was === undefined ? {} : { before: was }), ...(is === undefined ? {} : { after: is }) }]
  })
}
