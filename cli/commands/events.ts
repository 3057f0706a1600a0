/** `skein events`: follows the events of a domain and of the task manager. */
import { parseWithExactIntegers } from '#core/exact-integers.ts'
import type { ApiRequest, Cli, Group } from '../shared/command.ts'
import { follow } from '../shared/event-stream.ts'
import { UsageError } from '../shared/failures.ts'
import { oneLine } from '../shared/plain-text.ts'
import { isRecord, plainText } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'
import { STATE_NAMES } from './task-states.ts'

export const events: Group = {
  name: 'events',
  summary: 'follow events',
  commands: [
    {
      words: 'tail',
      args: '',
      tail: 'domain',
      summary: 'follow the events of a domain until interrupted',
      example: '',
      async run(cli, given) {
        if (given.domain === undefined)
          throw new UsageError('a domain is required: use --domain, or skein context domain ID')
        await print(cli, given, {
          service: 'host',
          path: `/${encodeURIComponent(given.domain)}/events`,
          authorization: 'needed',
        })
      },
    },
    {
      words: 'tasks',
      args: '',
      tail: 'user',
      summary: 'follow tasks, runs and workers until interrupted',
      example: '',
      run: (cli, given) => print(cli, given, { service: 'manager', path: '/events', authorization: 'optional' }),
    },
  ],
}

async function print(
  cli: Cli,
  given: Given,
  request: Pick<ApiRequest, 'service' | 'path'> & { authorization: 'needed' | 'optional' },
): Promise<void> {
  await follow(cli, { method: 'GET', token: given.credential, ...request }, ({ event, data }) => {
    const value: unknown = parseWithExactIntegers(data)
    cli.output.event(value, () => textOfEvent(cli, event, value))
    return true
  })
}

/** Fields that the line shows in another form, or that do not help a reader. */
const LEFT_OUT: ReadonlySet<string> = new Set([
  'occurred_at',
  'created_at',
  'updated_at',
  'event_id',
  'operation',
  'type',
  'request_id',
  'token_type',
  'super_admin',
  'address',
  'domain',
  'domain_id',
])

/** `2026-01-01 12:00:01  client.create  id=… name=pump status=enabled user_id=…` */
function textOfEvent(cli: Cli, event: string, value: unknown): string {
  const record = isRecord(value) ? value : {}
  const fields = Object.entries(record)
    .filter(([key, one]) => !LEFT_OUT.has(key) && ['string', 'number', 'boolean'].includes(typeof one) && one !== '')
    .map(([key, one]) => `${key}=${key === 'state' ? (STATE_NAMES[Number(one)] ?? plainText(one)) : plainText(one)}`)
  return [timeOf(record['occurred_at']), cli.output.paint('bold', oneLine(event)), oneLine(fields.join(' '))].join('  ')
}

/** Nanoseconds, or an RFC 3339 time. */
function timeOf(occurredAt: unknown): string {
  const text = typeof occurredAt === 'number' ? new Date(occurredAt / 1e6).toISOString() : plainText(occurredAt)
  return oneLine(text.slice(0, 19).replace('T', ' '))
}
