/** `skein alarms`: what rules raised. */
import { parseWithExactIntegers } from '#core/exact-integers.ts'
import type { Call, Cli, Group } from '../shared/command.ts'
import { follow } from '../shared/event-stream.ts'
import { UsageError } from '../shared/failures.ts'
import { oneLine } from '../shared/plain-text.ts'
import { arg, isRecord, jsonObject, plainText } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

const ALARMS = '/{domain!}/alarms'
const ONE = `${ALARMS}/{alarm_id}`

const WINDOWS = '/{domain!}/maintenance-windows'
const ONE_WINDOW = `${WINDOWS}/{window_id}`
const WINDOW_COLUMNS = [
  'id',
  'name',
  'active_until',
  'next_at',
  'schedule',
  'timezone',
  'duration',
  'starts_at',
  'ends_at',
]

const COLUMNS = [
  'id',
  'severity',
  'status',
  'rule_name',
  'client_name',
  'name',
  'value',
  'count',
  'first_at',
  'silenced_until',
]
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
    {
      words: 'maintenance create',
      args: '<JSON_window>',
      tail: 'domain',
      summary: 'plan times in which rules notify nobody; JSON, or @file',
      example: `'{"name": "Sundays", "schedule": "0 2 * * 0", "timezone": "Europe/Berlin", "duration": "2h"}'`,
      answer: 'created',
      columns: WINDOW_COLUMNS,
      call: { method: 'POST', service: 'host', path: WINDOWS, body: (given) => jsonObject(given, 'JSON_window') },
    },
    {
      words: 'maintenance list',
      args: '',
      tail: 'domain',
      summary: 'list maintenance windows, and which are now',
      example: '--name Sun',
      columns: WINDOW_COLUMNS,
      call: { method: 'GET', service: 'host', path: WINDOWS, query: ['limit', 'offset', 'name'] },
    },
    {
      words: 'maintenance view',
      args: '<window_id>',
      tail: 'domain',
      summary: 'show a maintenance window',
      example: '<window_id>',
      columns: WINDOW_COLUMNS,
      call: { method: 'GET', service: 'host', path: ONE_WINDOW },
    },
    {
      words: 'maintenance update',
      args: '<window_id> <JSON_window>',
      tail: 'domain',
      summary: 'change fields of a maintenance window; what it no longer silences is sent',
      example: `<window_id> '{"duration": "3h"}'`,
      columns: WINDOW_COLUMNS,
      call: { method: 'PATCH', service: 'host', path: ONE_WINDOW, body: (given) => jsonObject(given, 'JSON_window') },
    },
    {
      words: 'maintenance delete',
      args: '<window_id>',
      tail: 'domain',
      summary: 'delete a maintenance window; what it silenced is sent',
      example: '<window_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: 'host', path: ONE_WINDOW },
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
