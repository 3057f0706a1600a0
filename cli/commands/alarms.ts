/** `skein alarms`: what rules raised. */
import { parseWithExactIntegers } from '#core/exact-integers.ts'
import type { Call, Cli, Group } from '../shared/command.ts'
import { follow } from '../shared/event-stream.ts'
import { UsageError } from '../shared/failures.ts'
import { oneLine } from '../shared/plain-text.ts'
import { arg, isRecord, plainText } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

const ALARMS = '/{domain!}/alarms'
const ONE = `${ALARMS}/{alarm_id}`

const COLUMNS = ['id', 'severity', 'status', 'rule_name', 'client_name', 'name', 'value', 'count', 'first_at']
const LIST: Call = { method: 'GET', service: 'host', path: ALARMS, query: ['limit', 'offset', 'status'] }

const change = (words: string, body: Record<string, unknown>, summary: string) => ({
  words,
  args: '<alarm_id>',
  tail: 'domain' as const,
  summary,
  example: '<alarm_id>',
  call: { method: 'PATCH' as const, service: 'host' as const, path: ONE, body: () => body },
})

export const alarms: Group = {
  name: 'alarms',
  summary: 'alarms that rules raised',
  columns: COLUMNS,
  commands: [
    {
      words: 'list',
      args: '',
      tail: 'domain',
      summary: 'list alarms, the newest first, with --status and --query severity=critical; -f follows them',
      example: '--status open',
      flags: ['follow', 'status'],
      usesDomainId: true,
      run: listOrFollow,
    },
    {
      words: 'view',
      args: '<alarm_id>',
      tail: 'domain',
      summary: 'show an alarm',
      example: '<alarm_id>',
      call: { method: 'GET', service: 'host', path: ONE },
    },
    {
      words: 'history',
      args: '<alarm_id>',
      tail: 'domain',
      summary: 'list what was done with an alarm',
      example: '<alarm_id>',
      columns: ['at', 'change', 'actor_name', 'assignee_name', 'comment'],
      call: { method: 'GET', service: 'host', path: `${ONE}/history`, query: ['limit', 'offset'] },
    },
    change('acknowledge', { status: 'acknowledged' }, 'take notice of an alarm'),
    change('clear', { status: 'cleared' }, 'end an alarm'),
    {
      words: 'comment',
      args: '<alarm_id> <text>',
      tail: 'domain',
      summary: 'add a comment',
      example: "<alarm_id> 'the fan is broken'",
      call: { method: 'PATCH', service: 'host', path: ONE, body: (given) => ({ comment: arg(given, 'text') }) },
    },
    {
      words: 'assign',
      args: '<alarm_id> <user_id>',
      tail: 'domain',
      summary: 'assign an alarm to a user who may read alarms',
      example: '<alarm_id> <user_id>',
      call: { method: 'PATCH', service: 'host', path: ONE, body: (given) => ({ assignee_id: arg(given, 'user_id') }) },
    },
    {
      words: 'delete',
      args: '<alarm_id>',
      tail: 'domain',
      summary: 'delete an alarm and its history',
      example: '<alarm_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: 'host', path: ONE },
    },
  ],
}

async function listOrFollow(cli: Cli, given: Given): Promise<void> {
  if (given.domain === undefined) throw new UsageError('a domain is required: use --domain, or skein context domain ID')
  if (!given.flags.has('follow')) return cli.show('data', await cli.call(LIST, given), { columns: COLUMNS })
  const path = `/${encodeURIComponent(given.domain)}/events`
  const request = { method: 'GET', service: 'host', authorization: 'needed', token: given.credential, path } as const
  await follow(cli, request, ({ event, data }) => {
    if (!event.startsWith('alarm.')) return true
    const value: unknown = parseWithExactIntegers(data)
    cli.output.event(value, () => textOf(cli, event, value))
    return true
  })
}

/** `2026-01-01 12:00:01  alarm.raise  major  too hot  temperature  client …` */
function textOf(cli: Cli, event: string, value: unknown): string {
  const record = isRecord(value) ? value : {}
  const at = plainText(record['occurred_at']).slice(0, 19).replace('T', ' ')
  const fields = ['severity', 'rule_name', 'name', 'client_id', 'id'].map((name) => plainText(record[name]))
  return [
    oneLine(at),
    cli.output.paint('bold', oneLine(event)),
    oneLine(fields.filter((text) => text !== '').join('  ')),
  ].join('  ')
}
