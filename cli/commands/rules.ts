/** `skein rules`: rules over messages, silence and the state of clients. */
import type { Cli, Group } from '../shared/command.ts'
import { CommandError, UsageError } from '../shared/failures.ts'
import { rowsOf } from '../shared/pages.ts'
import { formatRules, readRules } from '../shared/rules-file.ts'
import { deadLetterCommands } from './dead-letters.ts'
import { arg, isRecord, jsonObject, plainText } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

const RULES = '/{domain!}/rules'
const ONE = `${RULES}/{rule_id}`

export const rules: Group = {
  name: 'rules',
  summary: 'rules over messages, silence and the state of clients',
  description:
    'A rule has a source, a condition, a shape in time and actions: docs/guides/rules.md. It acts with the rights of who last changed it.',
  columns: ['id', 'name', 'status', 'severity', 'condition', 'open_alarms', 'paused.reason', 'last_error.reason'],
  commands: [
    {
      words: 'create',
      args: '<JSON_rule>',
      tail: 'domain',
      summary: 'create a rule; JSON, or @file',
      example: `'{"name": "too hot", "source": {"type": "messages", "channels": ["<channel_id>"]}, "condition": "value > 30.0"}'`,
      answer: 'created',
      call: { method: 'POST', service: 'host', path: RULES, body: (given) => jsonObject(given, 'JSON_rule') },
    },
    {
      words: 'list',
      args: '',
      tail: 'domain',
      summary: 'list rules',
      example: '--name hot',
      call: { method: 'GET', service: 'host', path: RULES, query: ['limit', 'offset', 'name', 'status'] },
    },
    {
      words: 'view',
      args: '<rule_id>',
      tail: 'domain',
      summary: 'show a rule, and what it has done',
      example: '<rule_id>',
      call: { method: 'GET', service: 'host', path: ONE },
    },
    {
      words: 'update',
      args: '<rule_id> <JSON_rule>',
      tail: 'domain',
      summary: 'change fields of a rule; its position is unchanged',
      example: `<rule_id> '{"for": "2m"}'`,
      call: { method: 'PATCH', service: 'host', path: ONE, body: (given) => jsonObject(given, 'JSON_rule') },
    },
    {
      words: 'enable',
      args: '<rule_id>',
      tail: 'domain',
      summary: 'enable a rule, or end its pause',
      example: '<rule_id>',
      call: { method: 'POST', service: 'host', path: `${ONE}/enable`, body: () => ({}) },
    },
    {
      words: 'disable',
      args: '<rule_id>',
      tail: 'domain',
      summary: 'disable a rule; its open alarms stay',
      example: '<rule_id>',
      call: { method: 'POST', service: 'host', path: `${ONE}/disable` },
    },
    {
      words: 'delete',
      args: '<rule_id>',
      tail: 'domain',
      summary: 'delete a rule; its open alarms are cleared',
      example: '<rule_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: 'host', path: ONE },
    },
    {
      words: 'contacts',
      args: '<rule_id>',
      tail: 'domain',
      summary: 'list to whom a rule sends mails and webhook requests',
      example: '<rule_id>',
      columns: ['contact', 'status', 'pending', 'dead_letters', 'last_error.reason'],
      call: { method: 'GET', service: 'host', path: `${ONE}/contacts` },
    },
    ...deadLetterCommands('a contact of a rule', { path: ONE, name: 'rule_id', tail: 'domain', service: 'host' }),
    {
      words: 'try',
      args: '<JSON_rule>',
      tail: 'domain',
      summary: 'say what a rule would have done in the last hour; nothing is stored',
      example: `'{"source": {"type": "messages", "channels": ["<channel_id>"]}, "condition": "value > 30.0"}'`,
      columns: ['at', 'moment', 'client_name', 'name', 'value', 'text'],
      call: { method: 'POST', service: 'host', path: `${RULES}/try`, body: (given) => jsonObject(given, 'JSON_rule') },
    },
    {
      words: 'export',
      args: '',
      tail: 'domain',
      summary: 'print the rules of the domain as YAML',
      example: '--name hot',
      flags: ['name'],
      usesDomainId: true,
      run: exportRules,
    },
    {
      words: 'import',
      args: '<file>',
      tail: 'domain',
      summary: 'create the rules of a YAML file, and change those that have the same name; - for standard input',
      example: 'rules.yaml',
      flags: ['dry-run'],
      usesDomainId: true,
      run: importRules,
    },
  ],
}

function pathOf({ domain }: Given): string {
  if (domain === undefined) throw new UsageError('a domain is required: use --domain, or skein context domain ID')
  return `/${encodeURIComponent(domain)}/rules`
}

const request = (given: Given) =>
  ({ service: 'host', authorization: 'needed', token: given.credential, path: pathOf(given) }) as const

async function exportRules(cli: Cli, given: Given): Promise<void> {
  const found: Record<string, unknown>[] = []
  const query = { name: given.flags.get('name') }
  for await (const rule of rowsOf(cli, { method: 'GET', ...request(given), query }, 'rules')) found.push(rule)
  await cli.output.text(formatRules(found))
}

/** Rules are the same if their names are. All are read before the first is changed. */
async function importRules(cli: Cli, given: Given): Promise<void> {
  const wanted = readRules(arg(given, 'file'))
  const known = new Map<string, string>()
  for await (const rule of rowsOf(cli, { method: 'GET', ...request(given) }, 'rules'))
    known.set(plainText(rule['name']), plainText(rule['id']))
  const isDry = given.flags.has('dry-run')
  for (const rule of wanted) {
    const name = plainText(rule['name'])
    const id = known.get(name)
    if (!isDry) await store(cli, given, rule, id)
    cli.output.line(`${id === undefined ? 'created' : 'changed'} ${name}`)
  }
}

async function store(
  cli: Cli,
  given: Given,
  { status, ...rule }: Record<string, unknown>,
  id: string | undefined,
): Promise<void> {
  const { path, ...common } = request(given)
  if (id === undefined) {
    await cli.request({ method: 'POST', ...common, path, json: { ...rule, status } })
    return
  }
  const { value } = await cli.request({ method: 'PATCH', ...common, path: `${path}/${id}`, json: rule })
  if (!isRecord(value)) throw new CommandError('the answer is no rule')
  if (status === undefined || status === value['status']) return
  const change = status === 'enabled' ? 'enable' : 'disable'
  await cli.request({ method: 'POST', ...common, path: `${path}/${id}/${change}`, json: {} })
}
