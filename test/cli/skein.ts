/** Runs `skein` as users do: a process of its own, in a pipe or on a pseudo-terminal. */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { spawn as spawnTerminal } from '@lydell/node-pty'
import { COMPILE_CACHE } from '../harness/compile-cache.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const MAIN = join(ROOT, 'cli', 'main.ts')
const DEADLINE_MS = 180_000
export const TERMINAL_COLUMNS = 140

export type Ended = { code: number; stdout: string; stderr: string }

export type RunOptions = {
  /** Written to standard input, which is then closed. */
  input?: string
  /** Typed on the terminal, one after each question. */
  answers?: readonly string[]
  environment?: Record<string, string>
  cwd?: string
  /** Called with what has come so far; true sends SIGINT, once. */
  interruptWhen?: (stdout: string) => boolean
}

/** A user's machine: a folder for configuration and logins, and variables. */
export type Home = Disposable & {
  readonly folder: string
  readonly environment: Record<string, string>
  run(args: readonly string[], options?: RunOptions): Promise<Ended>
  /** On a terminal both streams are one. */
  runOnTerminal(args: readonly string[], options?: RunOptions): Promise<Ended>
}

export function createHome(environment: Record<string, string> = {}): Home {
  const folder = mkdtempSync(join(tmpdir(), 'skein-home-'))
  const variables = (more: Record<string, string> = {}): Record<string, string> => ({
    PATH: process.env['PATH'] ?? '',
    HOME: folder,
    TERM: 'xterm',
    SKEIN_CONFIG_DIR: join(folder, 'skein'),
    ...COMPILE_CACHE,
    ...environment,
    ...more,
  })
  return {
    folder,
    environment: variables(),
    run: (args, options = {}) => runInPipe(args, variables(options.environment), options.cwd ?? folder, options),
    runOnTerminal: (args, options = {}) =>
      runOnTerminal(args, variables(options.environment), options.cwd ?? folder, options),
    [Symbol.dispose]() {
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}

async function runInPipe(
  args: readonly string[],
  env: Record<string, string>,
  cwd: string,
  { input, interruptWhen }: RunOptions,
): Promise<Ended> {
  const child = spawn(process.execPath, [MAIN, ...args], { cwd, env, stdio: ['pipe', 'pipe', 'pipe'] })
  let stdout = ''
  let stderr = ''
  let isInterrupted = false
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString()
    if (!isInterrupted && interruptWhen?.(stdout) === true) {
      isInterrupted = true
      child.kill('SIGINT')
    }
  })
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  child.stdin.on('error', () => undefined)
  child.stdin.end(input ?? '')
  const killer = setTimeout(() => child.kill('SIGKILL'), DEADLINE_MS)
  const code = await new Promise<number>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (status, signal) => resolve(status ?? (signal === 'SIGKILL' ? 137 : 1)))
  })
  clearTimeout(killer)
  return { code, stdout, stderr }
}

async function runOnTerminal(
  args: readonly string[],
  env: Record<string, string>,
  cwd: string,
  { answers = [], interruptWhen }: RunOptions,
): Promise<Ended> {
  const terminal = spawnTerminal(process.execPath, [MAIN, ...args], { cwd, env, cols: TERMINAL_COLUMNS, rows: 50 })
  let stdout = ''
  let isInterrupted = false
  let answered = 0
  terminal.onData((chunk) => {
    stdout += chunk
    const answer = answers[answered]
    // oxlint-disable-next-line no-control-regex -- what a terminal is sent
    if (answer !== undefined && stdout.split(': ').length - 1 > answered) {
      answered += 1
      terminal.write(`${answer}\r`)
    }
    if (!isInterrupted && interruptWhen?.(stdout) === true) {
      isInterrupted = true
      // As the key does it: the line discipline makes a signal of it, unless the program reads keys itself.
      terminal.write('\u0003')
    }
  })
  const killer = setTimeout(() => terminal.kill('SIGKILL'), DEADLINE_MS)
  const code = await new Promise<number>((resolve) => terminal.onExit(({ exitCode }) => resolve(exitCode)))
  clearTimeout(killer)
  await new Promise((resolve) => setImmediate(resolve))
  return { code, stdout: stdout.replaceAll('\r\n', '\n'), stderr: '' }
}
