/** `skein modules try`: runs a module in a program of its own, which has the runner and the isolation of a worker. */
import { fork } from 'node:child_process'
import { basename, join, resolve } from 'node:path'
import { parseSize, textOrBytes } from '#core/bytes/index.ts'
import { HOME, entryPoint } from '#core/installation.ts'
import type { Cli } from '../shared/command.ts'
import { secondsOf } from '../shared/duration.ts'
import { CommandError } from '../shared/failures.ts'
import { oneLine } from '../shared/plain-text.ts'
import { createProgress, formatBytes } from '../shared/progress.ts'
import { arg, contentOf, isRecord, plainText } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'
import { runFields } from './run-fields.ts'

/** The limits of a task without `memory_limit` and `timeout`. */
const DEFAULT_MEMORY = '64MiB'
const DEFAULT_TIMEOUT_SECONDS = 300
/** Signs of one value on a terminal; a pipe gets all of it. */
const MAX_SHOWN_CHARACTERS = 2_000
/** Exports and imports on a terminal. */
const MAX_SHOWN_FUNCTIONS = 40

export async function tryModule(cli: Cli, given: Given): Promise<void> {
  const request = requestOf(given)
  const isWatching = given.flags.has('watch')
  const progress = createProgress(cli.output, `trying ${basename(arg(given, 'file'))}`)
  const child = fork(entryPoint('programs/try.ts'), {
    cwd: HOME,
    execArgv: ['--disable-warning=ExperimentalWarning'],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    env: { ...cli.settings.environment, NODE_COMPILE_CACHE: join(HOME, 'node_modules', '.cache', 'node') },
  })
  // A terminal sends Ctrl-C to both processes; a signal to this process alone must stop the child too.
  cli.signal.addEventListener('abort', () => child.kill('SIGTERM'), { once: true })
  let hasFailed = false
  child.on('message', (round) => {
    if (!isRecord(round)) return
    progress.end()
    hasFailed = isFailed(round)
    cli.output.event(round, () => describe(cli, round).join('\n'))
    if (isWatching) cli.output.note(`waiting for a change of ${basename(arg(given, 'file'))}; Ctrl-C ends`)
  })
  child.send({ ...request, isWatching })
  progress.say('starts')
  try {
    const code = await new Promise<number>((done, reject) => {
      child.once('error', (error) => reject(new CommandError(`cannot start: ${error.message}`)))
      child.once('exit', (status) => done(status ?? 1))
    })
    process.exitCode = code !== 0 ? code : hasFailed && !isWatching ? 1 : 0
  } finally {
    progress.end()
  }
}

function requestOf(given: Given): Record<string, unknown> {
  const { flags } = given
  const { inputs = [], cli_args: args = [], env = {} } = runFields(given)
  const memory = flags.get('memory') ?? DEFAULT_MEMORY
  const memoryLimitBytes = parseSize(memory)
  if (memoryLimitBytes === undefined || memoryLimitBytes === 0)
    throw new CommandError('--memory must be a size, such as 128MiB')
  const timeout = flags.get('timeout')
  const stdin = contentOf(flags.get('stdin') ?? '')
  const message = flags.get('message')
  return {
    file: resolve(arg(given, 'file')),
    functionName: flags.get('function') ?? '',
    inputs,
    args,
    env,
    stdin: typeof stdin === 'string' ? stdin : { base64: stdin.toString('base64') },
    bytesAsBase64: flags.get('bytes') === 'base64',
    memoryLimitBytes,
    timeoutMs: 1000 * (timeout === undefined ? DEFAULT_TIMEOUT_SECONDS : secondsOf(timeout, '--timeout')),
    messageFile: message === undefined ? null : resolve(message),
  }
}

const recordsOf = (value: unknown): Record<string, unknown>[] => (Array.isArray(value) ? value.filter(isRecord) : [])

function isFailed(round: Record<string, unknown>): boolean {
  return round['error'] !== undefined || isAnyFailed(recordsOf(round['runs']))
}

/** Records that the function cannot take are dropped, as on the platform; a message of which nothing runs has failed. */
function isAnyFailed(runs: Record<string, unknown>[]): boolean {
  const done = runs.filter(({ state }) => state !== 'dropped')
  return done.length === 0 || done.some(({ state }) => state !== 'completed')
}

type Line = (name: string, text: string) => string

function describe(cli: Cli, round: Record<string, unknown>): string[] {
  const line: Line = (name, text) => `${cli.output.paint('bold', name.padEnd(10))}  ${text}`
  const file = oneLine(basename(plainText(round['file'])))
  if (round['error'] !== undefined) return [line('module', file), line('refused', oneLine(plainText(round['error'])))]
  const module = isRecord(round['module']) ? round['module'] : {}
  const runs = recordsOf(round['runs'])
  const omitted = Number(round['omitted_runs'])
  return [
    line('module', `${file}: ${plainText(module['kind'])}, ${sizeOf(Number(module['bytes']))}`),
    line('exports', functionsOf(module['exports'])),
    line('imports', functionsOf(module['imports'])),
    line('isolation', oneLine(plainText(round['isolation']))),
    ...(module['uses_state'] === true
      ? [line('state', 'in memory: it begins empty, its runs share it, and nothing is stored')]
      : []),
    ...runs.flatMap((run) => ['', ...describeRun(run, Number(round['memory_limit']), line)]),
    ...(omitted > 0 ? ['', `and ${omitted} more runs of this message`] : []),
  ]
}

function functionsOf(value: unknown): string {
  const shown = recordsOf(value)
    .filter(({ kind }) => kind === 'function' || kind === 'instance')
    .map(({ module, name, kind, params, results }) => {
      const from = module === undefined || module === '' ? '' : `${plainText(module)} `
      const type = `(${listOf(params)})${listOf(results) === '' ? '' : ` -> ${listOf(results)}`}`
      return oneLine(`${from}${plainText(name)}${kind === 'function' ? type : ''}`.trimEnd())
    })
  if (shown.length === 0) return 'none'
  const more = shown.length - MAX_SHOWN_FUNCTIONS
  return [...shown.slice(0, MAX_SHOWN_FUNCTIONS), ...(more > 0 ? [`and ${more} more`] : [])].join(`\n${' '.repeat(12)}`)
}

const listOf = (value: unknown): string => (Array.isArray(value) ? value.map((one) => plainText(one)).join(', ') : '')

function describeRun(run: Record<string, unknown>, memoryLimitBytes: number, line: Line): string[] {
  const told = (name: string, value: unknown) => (plainText(value) === '' ? [] : [line(name, shown(value))])
  if (run['state'] === 'dropped') return [...told('stdin', run['stdin']), ...told('dropped', run['error'])]
  const memory = run['memory_bytes']
  const total = Number(run['publications_total'])
  const publications = recordsOf(run['publications'])
  return [
    line('inputs', shown(run['inputs'])),
    // A function with inputs has the message there.
    ...(Array.isArray(run['inputs']) && run['inputs'].length > 0 ? [] : told('stdin', run['stdin'])),
    line(
      'state',
      [run['state'], run['reason']]
        .map((part) => plainText(part))
        .filter((part) => part !== '')
        .join(', '),
    ),
    ...told('error', run['error']),
    ...(Array.isArray(run['frames']) && run['frames'].length > 0 ? [line('frames', listOf(run['frames']))] : []),
    line('result', shown(run['results'])),
    ...told('stdout', run['stdout']),
    ...told('stderr', run['stderr']),
    ...publications.map(({ topic, payload, refused }) => {
      const why = refused === undefined ? '' : ` (refused: ${plainText(refused)})`
      return line(
        'publishes',
        oneLine(`${plainText(topic, 'the only grant') || 'the only grant'}: ${cut(plainText(payload))}${why}`),
      )
    }),
    ...(total > publications.length ? [line('publishes', `and ${total - publications.length} more messages`)] : []),
    ...recordsOf(run['kept']).map(({ bucket, key, value }) =>
      line('keeps', oneLine(`${plainText(bucket)}: ${cut(plainText(key))} = ${cut(textOfBase64(plainText(value)))}`)),
    ),
    line('memory', `${memory === null ? 'unknown' : sizeOf(Number(memory))} of at most ${sizeOf(memoryLimitBytes)}`),
    line('time', `${milliseconds(run['duration_ms'])}, after ${milliseconds(run['prepare_ms'])} to start and compile`),
  ]
}

/** Bytes that are no text stay in base64. */
function textOfBase64(base64: string): string {
  const read = textOrBytes(Buffer.from(base64, 'base64'))
  return typeof read === 'string' ? read : `base64 ${read.base64}`
}

const cut = (text: string): string =>
  text.length > MAX_SHOWN_CHARACTERS ? `${text.slice(0, MAX_SHOWN_CHARACTERS)}… (${text.length} characters)` : text

/** Lines of output stand below each other. */
function shown(value: unknown): string {
  const lines = cut(plainText(value)).trimEnd().split('\n').map(oneLine)
  return lines.join(`\n${' '.repeat(12)}`)
}

const KIB = 1024
const sizeOf = (bytes: number): string => (bytes < KIB ? `${bytes} bytes` : formatBytes(bytes))

const milliseconds = (value: unknown): string => {
  const ms = Number(value)
  return `${ms < 100 ? Number(ms.toPrecision(3)) : Math.round(ms)} ms`
}
