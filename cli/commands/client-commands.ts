/** `skein clients command` and `commands`: commands that a client carries out. */
import type { Command } from '../shared/command.ts'
import { arg, json, jsonObject } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

const COMMANDS = '/{domain!}/clients/{client_id}/commands'
const ONE = `${COMMANDS}/{command_id}`
const DEFAULT_WAIT = '30s'
const columns = ['id', 'name', 'status', 'created_at', 'delivered_at', 'ended_at', 'task_id', 'result', 'reason']

const MANY = '/{domain!}/clients/commands'
const manyColumns = [
  'id',
  'name',
  'status',
  'progress.total',
  'progress.waiting',
  'progress.open',
  'progress.succeeded',
  'progress.failed',
  'created_at',
  'ended_at',
]

const payloadOf = (given: Given) =>
  given.args['JSON_payload'] === undefined ? {} : { payload: json(given, 'JSON_payload') }

export const clientCommands: readonly Command[] = [
  {
    words: 'command',
    args: '<client_id> <name> [<JSON_payload>]',
    tail: 'domain',
    summary: 'give a client a command; with --wait, show its result (--timeout: how long to wait, at most 1m)',
    example: `<client_id> reboot '{"delay": 5}'`,
    flags: ['wait', 'timeout'],
    columns,
    call: {
      method: 'POST',
      service: 'clients',
      path: COMMANDS,
      parameters: ({ flags }) => (flags.has('wait') ? { wait: flags.get('timeout') ?? DEFAULT_WAIT } : {}),
      body: (given) => ({ name: arg(given, 'name'), ...payloadOf(given) }),
    },
  },
  {
    words: 'commands get all',
    args: '<client_id>',
    tail: 'domain',
    summary: 'list the commands of a client, the newest first; --status open: those that have not ended',
    example: '<client_id> --status open',
    columns,
    call: { method: 'GET', service: 'clients', path: COMMANDS, query: ['limit', 'offset', 'status'] },
  },
  {
    words: 'commands get',
    args: '<client_id> <command_id>',
    tail: 'domain',
    summary: 'show a command and its result',
    example: '<client_id> <command_id>',
    columns,
    call: { method: 'GET', service: 'clients', path: ONE },
  },
  {
    words: 'commands cancel',
    args: '<client_id> <command_id>',
    tail: 'domain',
    summary: 'cancel a command that has not ended',
    example: '<client_id> <command_id>',
    columns,
    call: { method: 'POST', service: 'clients', path: `${ONE}/cancel` },
  },
  {
    words: 'commands many',
    args: '<JSON_command>',
    tail: 'domain',
    summary: 'give the clients with a tag, or of a group, a command, a part at a time; JSON, or @file',
    example: `'{"name": "reboot", "group": "<group_id>", "at_once": 10, "stop_failed_percent": 20}'`,
    columns: manyColumns,
    call: {
      method: 'POST',
      service: 'clients',
      path: MANY,
      body: (given) => jsonObject(given, 'JSON_command'),
    },
  },
  {
    words: 'commands many get all',
    args: '',
    tail: 'domain',
    summary: 'list commands to many clients, the newest first',
    example: '',
    columns: manyColumns,
    call: { method: 'GET', service: 'clients', path: MANY, query: ['limit', 'offset'] },
  },
  {
    words: 'commands many get',
    args: '<bulk_id>',
    tail: 'domain',
    summary: 'show a command to many clients, and its progress',
    example: '<bulk_id>',
    columns: manyColumns,
    call: { method: 'GET', service: 'clients', path: `${MANY}/{bulk_id}` },
  },
  {
    words: 'commands many cancel',
    args: '<bulk_id>',
    tail: 'domain',
    summary: 'give no more of a command to many clients, and cancel those that no device has',
    example: '<bulk_id>',
    columns: manyColumns,
    call: { method: 'POST', service: 'clients', path: `${MANY}/{bulk_id}/cancel` },
  },
]
