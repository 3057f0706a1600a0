/** `skein messages`: send, read, follow. */
import { parseWithExactIntegers } from '#core/exact-integers.ts'
import type { ApiRequest, Cli, Group } from '../shared/command.ts'
import { CommandError, UsageError } from '../shared/failures.ts'
import { follow } from '../shared/event-stream.ts'
import { oneLine } from '../shared/plain-text.ts'
import { arg, contentOf, isRecord, plainText, splitTopic } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'
import { exportMessages } from './message-export.ts'

const FILTERS = [
  'limit',
  'offset',
  'name',
  'from',
  'to',
  'publisher',
  'without',
  'run',
  'message-id',
  'format',
  'aggregation',
  'interval',
  'order',
  'dir',
] as const
const COLUMNS = [
  'time',
  'subtopic',
  'name',
  'value',
  'values.min',
  'values.max',
  'values.avg',
  'values.sum',
  'values.count',
  'string_value',
  'bool_value',
  'data_value',
  'sum',
  'unit',
  'publisher',
  'protocol',
]
/** An export has neither pages nor buckets, and is in order of time. */
const EXPORT_FLAGS = ['from', 'to', 'publisher', 'without', 'run', 'message-id', 'format'] as const
const EXPORT_FILTERS = [...EXPORT_FLAGS, 'name', 'dir'] as const
const READ_FLAGS = [...EXPORT_FLAGS, 'aggregation', 'interval'] as const

export const messages: Group = {
  name: 'messages',
  summary: 'send, read and follow measurements',
  description: 'A channel is named by its id or route; a subtopic follows after a dot: <channel_id>.floor.1',
  columns: COLUMNS,
  commands: [
    {
      words: 'send',
      args: '<channel_id.subtopic> <JSON_string>',
      tail: 'device',
      summary: 'send a message, with a client secret or with the login',
      example: `<channel_id> '[{"n": "temperature", "u": "Cel", "v": 21.5}]' <client_secret>`,
      run: send,
    },
    {
      words: 'read',
      args: '<channel_id.subtopic>',
      tail: 'domain',
      summary: 'read messages, newest first',
      example: '<channel_id> --limit 5',
      flags: READ_FLAGS,
      run: read,
    },
    {
      words: 'export',
      args: '<channel_id.subtopic> <file>',
      tail: 'domain',
      summary: 'export all matching messages to a file: .csv or .jsonl',
      example: '<channel_id> readings.csv',
      flags: EXPORT_FLAGS,
      async run(cli, given) {
        const { channel, subtopic } = topicOf(given)
        const query = defined(queryOf(cli, given, EXPORT_FILTERS, subtopic))
        const path = pathOf(given, channel)
        const request: ApiRequest = { method: 'GET', service: 'reader', path, query, ...credentialOf(given) }
        await exportMessages(cli, request, arg(given, 'file'))
      },
    },
    {
      words: 'latest',
      args: '<channel_id.subtopic>',
      tail: 'domain',
      summary: 'show the newest value of each measurement',
      example: '<channel_id>',
      flags: ['publisher', 'without'],
      run: latest,
    },
    {
      words: 'tail',
      args: '<channel_id.subtopic>',
      tail: 'domain',
      summary: 'follow a channel until interrupted',
      example: '<channel_id>',
      flags: ['without'],
      run: tail,
    },
    {
      words: 'retained',
      args: '<channel_id>',
      tail: 'domain',
      summary: 'list the retained messages of a channel',
      example: '<channel_id>',
      columns: ['stored_at', 'subtopic', 'qos', 'payload', 'publisher'],
      call: {
        method: 'GET',
        service: 'reader',
        path: '/{domain!}/channels/{channel_id}/retained',
        query: ['limit', 'offset'],
      },
    },
    {
      words: 'retained delete',
      args: '<channel_id>',
      tail: 'domain',
      summary: 'delete the retained messages of a channel; --query subtopic=… selects one topic',
      example: '<channel_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: 'reader', path: '/{domain!}/channels/{channel_id}/retained', query: [] },
    },
    {
      words: 'delete',
      args: '<channel_id>',
      tail: 'domain',
      summary: 'delete messages of a time span, with --from and --to',
      example: '<channel_id> --from 1700000000 --to 1700003600',
      flags: ['from', 'to', 'publisher', 'dry-run'],
      answer: 'ok',
      call: {
        method: 'DELETE',
        service: 'reader',
        path: '/{domain!}/channels/{channel_id}/messages',
        query: ['from', 'to', 'publisher', 'dry-run'],
      },
    },
  ],
}

/** A device secret, or a user token, recognized by its form: a JWT or a personal access token. */
function credentialOf(given: Given): Pick<ApiRequest, 'authorization' | 'token'> {
  const { credential } = given
  if (credential === undefined) return {}
  return /^(pat_|eyJ[\w-]*\.[\w-]*\.|Bearer )/.test(credential)
    ? { token: credential }
    : { authorization: { header: `Client ${credential}` } }
}

const topicOf = (given: Given) => splitTopic(arg(given, 'channel_id.subtopic'))

/** `/m/<domain>/c/<channel>`, or the older path without a domain. */
function pathOf(given: Given, channel: string, after = ''): string {
  const id = encodeURIComponent(channel)
  return given.domain === undefined
    ? `/channels/${id}/messages${after}`
    : `/m/${encodeURIComponent(given.domain)}/c/${id}${after}`
}

async function send(cli: Cli, given: Given): Promise<void> {
  const { channel, subtopic } = topicOf(given)
  const after = subtopic === '' ? '' : `/${subtopic.split('.').map(encodeURIComponent).join('/')}`
  await cli.request({
    method: 'POST',
    service: 'http',
    path: pathOf(given, channel, after),
    text: contentOf(arg(given, 'JSON_string')),
    contentType: cli.settings.contentType,
    ...credentialOf(given),
  })
  cli.output.ok()
}

function queryOf(cli: Cli, given: Given, names: readonly (typeof FILTERS)[number][], subtopic: string) {
  const query: Record<string, string | undefined> = { subtopic: subtopic === '' ? undefined : subtopic }
  for (const name of names) query[name === 'message-id' ? 'message' : name] = cli.settings.filter(name)
  for (const pair of given.flags.all('query')) {
    const [key = '', ...value] = pair.split('=')
    if (key === '' || value.length === 0) throw new UsageError('--query must be KEY=VALUE')
    query[key] = value.join('=')
  }
  return query
}

async function read(cli: Cli, given: Given): Promise<void> {
  const { channel, subtopic } = topicOf(given)
  const reply = await cli.request({
    method: 'GET',
    service: 'reader',
    path: pathOf(given, channel),
    query: { limit: '10', offset: '0', ...defined(queryOf(cli, given, FILTERS, subtopic)) },
    ...credentialOf(given),
  })
  cli.show('data', reply, { columns: given.flags.get('format') === undefined ? COLUMNS : [] })
}

async function latest(cli: Cli, given: Given): Promise<void> {
  const { channel, subtopic } = topicOf(given)
  const reply = await cli.request({
    method: 'GET',
    service: 'reader',
    path: pathOf(given, channel, '/latest'),
    query: defined(queryOf(cli, given, ['limit', 'offset', 'name', 'publisher', 'without'], subtopic)),
    ...credentialOf(given),
  })
  cli.show('data', reply, { columns: COLUMNS })
}

const defined = (query: Record<string, string | undefined>) =>
  Object.fromEntries(Object.entries(query).filter(([, value]) => value !== undefined))

async function tail(cli: Cli, given: Given): Promise<void> {
  const { channel, subtopic } = topicOf(given)
  if (given.domain === undefined)
    throw new UsageError('a domain is required: give it before the token, use --domain, or skein context domain ID')
  const request: ApiRequest = {
    method: 'GET',
    service: 'reader',
    path: pathOf(given, channel, '/live'),
    query: { subtopic: subtopic === '' ? undefined : subtopic, without: cli.settings.filter('without') },
    ...credentialOf(given),
  }
  await follow(cli, request, ({ event, data }) => {
    const message: unknown = parseWithExactIntegers(data)
    if (event === 'end') {
      const reason = isRecord(message) ? message['reason'] : undefined
      if (reason === 'forbidden') throw new CommandError('you are no longer allowed to follow this channel')
      return true
    }
    cli.output.event(message, () => textOfMessage(message, cli))
    return true
  })
}

/** `2026-01-01T12:00:01.000Z  floor.1  temperature 21.5 Cel  <publisher>`, or the payload unchanged. */
function textOfMessage(message: unknown, cli: Cli): string {
  if (!isRecord(message)) return oneLine(plainText(message))
  const { created, subtopic, publisher, payload } = message
  const time = typeof created === 'number' ? new Date(millisecondsOf(created)).toISOString() : plainText(created)
  const records = Array.isArray(payload) ? payload.filter(isRecord) : []
  const isSenml = records.length > 0 && records.every((record) => 'n' in record || 'bn' in record)
  const text = isSenml ? records.map(textOfRecord).join(', ') : plainText(payload)
  const parts = [time, plainText(subtopic), text].filter((part) => part !== '').map(oneLine)
  const from = plainText(publisher)
  return [...parts, ...(from === '' ? [] : [cli.output.paint('dim', oneLine(from))])].join('  ')
}

function textOfRecord(record: Record<string, unknown>): string {
  const { bn, n, u, bu, v, vs, vb, vd, s } = record
  return [`${plainText(bn)}${plainText(n)}`, plainText(v ?? vs ?? vb ?? vd ?? s), plainText(u ?? bu)]
    .filter((part) => part !== '')
    .join(' ')
}

/** Seconds, or nanoseconds in older answers. */
const millisecondsOf = (created: number) => (created > 1e14 ? created / 1e6 : created * 1000)
