/** Records of the journal in words. */

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
  return [noun, between, name, VERBS[verb] ?? verb.replaceAll('_', ' ')]
    .filter((part) => part !== '' && part !== undefined)
    .join(' ')
}
