/** `skein tasks`. */
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { LISTING } from '../shared/command.ts'
import type { ApiRequest, Call, Cli, Command, Group, Reply } from '../shared/command.ts'
import { CommandError, InterruptedError, RefusedError } from '../shared/failures.ts'
import { arg, json, jsonObject } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'
import { deadLetterCommands } from './dead-letters.ts'
import { RUN_FLAGS, runFields } from './run-fields.ts'
import { TASK_STATE_COMMANDS } from './task-state.ts'
import { STATE_NAMES, stateNumber } from './task-states.ts'
import { printLogs } from './task-logs.ts'
import { runFile, uploadTo } from './task-run.ts'

const SERVICE = 'manager'
const ONE = '/tasks/{task_id}'
export const RUN_COLUMNS = ['run_id', 'id', 'state', 'worker_id', 'attempt', 'reason', 'created_at', 'finish_time']

function one(
  words: string,
  summary: string,
  call: Partial<Call> & { path: string },
  more: Partial<Command> = {},
): Command {
  return {
    words,
    args: '<task_id>',
    tail: 'user',
    summary,
    example: '<task_id>',
    ...more,
    call: { method: 'GET', service: SERVICE, auth: 'optional', ...call },
  }
}

/** A JSON object, or a name with flags. */
function newTask(given: Given): Record<string, unknown> {
  const text = arg(given, 'name|JSON_task')
  const fields = /^\s*\{|^@|^-$/.test(text) ? jsonObject(given, 'name|JSON_task') : { name: text }
  const { flags, domain } = given
  const image = flags.get('image')
  const name = flags.get('function')
  const timeout = flags.get('timeout')
  return {
    ...(domain === undefined ? {} : { domain_id: domain }),
    ...fields,
    ...runFields(given),
    ...(image === undefined ? {} : { image_url: image }),
    ...(name === undefined ? {} : { function: name }),
    ...(timeout === undefined ? {} : { timeout }),
  }
}

const show = one('get', 'show a task', { path: ONE })

export const tasks: Group = {
  name: 'tasks',
  summary: 'WebAssembly tasks',
  columns: [
    'id',
    'name',
    'state',
    'activity',
    'last_run.state',
    'last_run.at',
    'last_error.reason',
    'start_time',
    'finish_time',
    'created_at',
  ],
  labels: { state: STATE_NAMES, 'last_run.state': STATE_NAMES },
  commands: [
    {
      words: 'run',
      args: '<file|image>',
      tail: 'user',
      summary: 'create a task from a module and start it; --wait prints its result',
      example: 'add.wasm --inputs 1,2 --wait',
      flags: [...RUN_FLAGS, 'function', 'timeout', 'wait', 'rm'],
      run: runFile,
    },
    {
      words: 'create',
      args: '<name|JSON_task>',
      tail: 'user',
      summary: 'create a task from a name and flags, or from JSON',
      example: 'add --image docker.io/library/add:1 --inputs 1,2',
      flags: [...RUN_FLAGS, 'function', 'image', 'timeout'],
      call: { method: 'POST', service: SERVICE, path: '/tasks', auth: 'optional', body: newTask },
    },
    {
      words: 'get all',
      args: '',
      tail: 'user',
      summary: `list tasks; --state is ${STATE_NAMES.join(', ')}`,
      example: '--state failed',
      flags: ['state'],
      call: {
        method: 'GET',
        service: SERVICE,
        path: '/tasks',
        auth: 'optional',
        query: LISTING,
        parameters: ({ flags }) => {
          const state = flags.get('state')
          return state === undefined ? {} : { state: stateNumber(state) }
        },
      },
    },
    show,
    { ...show, words: 'view', isOlder: true },
    one(
      'update',
      'change a task that is not running',
      { method: 'PUT', path: ONE, body: (given) => json(given, 'JSON_task') },
      { args: '<task_id> <JSON_task>', example: `<task_id> '{"inputs": [3, 4]}'` },
    ),
    one(
      'delete',
      'delete a task; --force stops it first',
      { method: 'DELETE', path: ONE, query: ['force', 'dry-run'] },
      { flags: ['force', 'dry-run'], answer: 'ok' },
    ),
    {
      words: 'upload',
      args: '<task_id> <file>',
      tail: 'user',
      summary: 'upload the module of a task',
      example: '<task_id> add.wasm',
      async run(cli, given) {
        const reply = await uploadTo(cli, arg(given, 'task_id'), arg(given, 'file'), given.credential)
        cli.show('data', reply)
      },
    },
    one(
      'start',
      'start a task; flags apply to this run only',
      { method: 'POST', path: `${ONE}/start`, body: startBody },
      { flags: RUN_FLAGS, example: '<task_id> --inputs 1,2' },
    ),
    one('stop', 'stop a task', { method: 'POST', path: `${ONE}/stop` }),
    {
      words: 'invoke',
      args: '<task_id>',
      tail: 'user',
      summary: 'start a task and wait for the result',
      example: '<task_id> --inputs 1,2',
      flags: [...RUN_FLAGS, 'timeout'],
      run: invoke,
    },
    one('results', 'show the last result', { path: `${ONE}/results` }),
    one(
      'runs',
      'list the runs of a task',
      { path: `${ONE}/runs`, query: ['limit', 'offset'] },
      { columns: RUN_COLUMNS },
    ),
    {
      words: 'logs',
      args: '<task_id>',
      tail: 'user',
      summary:
        'print the output of the newest run; -f follows it, and the next runs of a task with a trigger or a schedule',
      example: '<task_id> -f',
      flags: ['follow', 'run', 'stream'],
      run: (cli, given) => printLogs(cli, given, arg(given, 'task_id'), given.flags.get('run')),
    },
    one(
      'answer',
      'let a task answer the commands to clients with a name (null: none any more)',
      { method: 'PUT', path: ONE, body: (given) => ({ answers: json(given, 'JSON_answers') }) },
      { args: '<task_id> <JSON_answers>', example: `<task_id> '{"command": "calibrate", "tag": "pump"}'` },
    ),
    one(
      'http',
      'let the runs of a task send HTTP requests (null: none any more)',
      { method: 'PUT', path: ONE, body: (given) => ({ http: json(given, 'JSON_grant') }) },
      {
        args: '<task_id> <JSON_grant>',
        example: `<task_id> '{"allow": [{"origin": "https://api.example.com", "methods": ["GET", "POST"]}]}'`,
      },
    ),
    one('take-over', 'grant the channels and commands of a task, and continue it if it is paused', {
      method: 'POST',
      path: `${ONE}/take-over`,
    }),
    one('placement', 'show which worker a task is placed on, and why others are excluded', {
      path: `${ONE}/placement`,
    }),
    one(
      'replay',
      'run a module over stored messages',
      { method: 'POST', path: `${ONE}/replay`, body: (given) => jsonObject(given, 'JSON_span') },
      {
        args: '<task_id> <JSON_span>',
        example: `<task_id> '{"channel_id": "<channel_id>", "from": 1700000000, "to": 1700003600}'`,
      },
    ),
    ...TASK_STATE_COMMANDS,
    ...deadLetterCommands('a task', { path: ONE, name: 'task_id', service: SERVICE, auth: 'optional' }),
  ],
}

function startBody(given: Given): unknown {
  const fields = runFields(given)
  return Object.keys(fields).length === 0 ? undefined : fields
}

/** The manager answers when the run has ended, or at its own deadline. */
const INVOKE_DEADLINE_MS = 24 * 3600 * 1000
/** After a lost connection the call is repeated this often, at this interval: a load balancer leads it to another manager. */
const MAX_REPEATS = 20
const REPEAT_MS = 1000

async function invoke(cli: Cli, given: Given): Promise<void> {
  const timeout = given.flags.get('timeout')
  const request = {
    method: 'POST',
    service: SERVICE,
    path: `/tasks/${encodeURIComponent(arg(given, 'task_id'))}/invoke`,
    json: { ...runFields(given), ...(timeout === undefined ? {} : { timeout }) },
    // Repeated calls wait for the run of the first one.
    headers: { 'Idempotency-Key': randomUUID() },
    authorization: 'optional',
    token: given.credential,
    deadlineMs: INVOKE_DEADLINE_MS,
  } satisfies ApiRequest
  let reply: Reply | undefined
  for (let repeats = 0; reply === undefined; repeats++) {
    try {
      reply = await cli.request(request)
    } catch (error) {
      if (repeats === MAX_REPEATS || !mayRepeat(error, repeats > 0)) throw error
      await sleep(REPEAT_MS, undefined, { signal: cli.signal }).catch(() => {
        throw new InterruptedError('interrupted')
      })
    }
  }
  if (reply.value === undefined) throw new CommandError('the answer of the manager is empty')
  cli.show('data', reply)
}

/** The connection was lost, or since then there is no manager that answers. */
function mayRepeat(error: unknown, isLost: boolean): boolean {
  if (error instanceof RefusedError) return error.status === 502 || (isLost && error.status === 503)
  const { code } = ((error as Error).cause ?? {}) as NodeJS.ErrnoException
  return code === 'ECONNRESET' || code === 'EPIPE' || (isLost && code === 'ECONNREFUSED')
}
