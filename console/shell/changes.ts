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
  add: 'added',
  issue: 'issued',
  revoke: 'revoked',
  start: 'started',
  stop: 'stopped',
  drain: 'drained',
  resume: 'resumed',
  update_policy: 'policy changed',
  issue_token: 'signed in',
  set_parent: 'moved to a group',
  remove_parent: 'taken out of its group',
}

const NOUNS: Readonly<Record<string, string>> = { cert: 'Certificate', mqtt: 'MQTT session' }

const idsOf = (value: unknown) => (Array.isArray(value) ? value.length : 0)

/** A change of many entities at once: "150 clients created", "20 clients connected to 1 channel". */
function describeMany({ operation, attributes = {} }: Item): string | undefined {
  const [subject = '', verb = ''] = operation.split('.')
  const [clients, channels] = [idsOf(attributes['client_ids']), idsOf(attributes['channel_ids'])]
  if (clients > 0 && channels > 0 && (verb === 'connect' || verb === 'disconnect'))
    return `${counted(clients, 'client')} ${VERBS[verb]} ${verb === 'connect' ? 'to' : 'from'} ${counted(channels, 'channel')}`
  const many = idsOf(attributes['ids'])
  return many > 0
    ? `${counted(many, subject.replaceAll('_', ' '))} ${VERBS[verb] ?? verb.replaceAll('_', ' ')}`
    : undefined
}

/** `client.update` of a client named pump: "Client pump changed". */
export function describeChange({ operation, attributes = {} }: Item): string {
  const [subject = '', ...rest] = operation.split('.')
  const verb = rest.at(-1) ?? ''
  const between = rest.slice(0, -1).join(' ')
  const after = attributes['after'] as { name?: unknown } | undefined
  const before = attributes['before'] as { name?: unknown } | undefined
  const name = [
    attributes['name'],
    after?.name,
    before?.name,
    attributes['role_name'],
    attributes['username'],
    attributes['subscriber_id'],
  ].find((one) => typeof one === 'string' && one !== '')
  const noun = NOUNS[subject] ?? `${subject[0]?.toUpperCase() ?? ''}${subject.slice(1).replaceAll('_', ' ')}`
  const many = describeMany({ operation, attributes })
  if (many !== undefined) return many
  return [noun, between, name, VERBS[verb] ?? verb.replaceAll('_', ' ')]
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
