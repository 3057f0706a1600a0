// What a user sees of a start and a stop: progress, addresses and then the log, without a warning about a normal state; the console
// answers at once.
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { createInstallation, launch, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const READY_DEADLINE_MS = 120_000
const STEP = /^ {2}(starting|checking|building|opening|joining) [a-zA-Z ]+ \.\.\.$/
/** Escape sequences of colors, and what npm draws. */
// oxlint-disable-next-line no-control-regex -- a terminal is given escape characters
const ESCAPES = /\u001B\[[0-9;]*[a-zA-Z]/g

const STARTS = [
  { processes: '1', folders: ['empty', 'existing'] },
  { processes: '2', folders: ['empty'] },
]

/** The lines before the banner, and those of the log after it. */
function partsOf(output: string): { before: string[]; log: string[] } {
  const [before = '', after = ''] = output.split(/\n\n[^\n]* is running[^]*\n {2}Next [^\n]*\n\n/)
  const lines = (text: string) => text.split('\n').filter((line) => line !== '')
  return { before: lines(before), log: lines(after) }
}

type Entry = { level: number; msg: string; check?: string; err?: { kind?: string } }

/** What takes too long on a busy machine is no normal state: a wait that ended at its deadline, and a check that was soon ready again. */
const isOfBusyMachine = ({ check, err }: Entry, later: readonly Entry[]) =>
  err?.kind === 'timeout' || (check !== undefined && later.some((one) => one.level === 30 && one.check === check))

async function consoleStatus(whole: Whole): Promise<number> {
  return (await whole.call('GET', '/console')).status
}

async function stop(whole: Whole): Promise<void> {
  whole.kill('SIGINT')
  expect(await whole.ended, whole.output()).toBe(0)
  await whole.silent
}

test.each(STARTS)(
  'a start in a folder that is $folders and its stop print progress, the banner and a log without warnings ($processes processes)',
  async ({ processes, folders }) => {
    using installation = await createInstallation({ SKEIN_API_PROCESSES: processes })
    for (const folder of folders) {
      await using whole = await startWhole(installation)
      expect(await consoleStatus(whole)).toBe(200)
      await stop(whole)
      const { before, log } = partsOf(whole.output())
      expect(before.length, `${folder}: ${whole.output()}`).toBeGreaterThan(3)
      expect(before.filter((line) => !STEP.test(line))).toEqual([])
      const entries = log.map((line) => JSON.parse(line) as Entry)
      const warnings = entries.filter((entry, at) => entry.level > 30 && !isOfBusyMachine(entry, entries.slice(at + 1)))
      expect(warnings.map((entry) => JSON.stringify(entry)).join('\n')).toBe('')
      expect(entries.map(({ msg }) => msg)).toContain('worker joined')
      expect(entries.at(-1)).toMatchObject({ msg: 'stopped', exitCode: 0 })
    }
  },
)

type Terminal = { output(): string; write(text: string): void; ended: Promise<number> }

/** `npm start` on a terminal, whose Ctrl-C reaches npm too. */
function startOnTerminal({ environment }: Installation): Terminal {
  // oxlint-disable-next-line typescript/consistent-type-imports -- a CommonJS package
  const { spawn } = createRequire(import.meta.url)('@lydell/node-pty') as typeof import('@lydell/node-pty')
  // On a slow machine npm shows progress of its own.
  const env = { PATH: process.env['PATH'], HOME: process.env['HOME'], npm_config_progress: 'false', ...environment }
  const terminal = spawn('npm', ['start'], { cwd: ROOT, cols: 200, rows: 60, env })
  let text = ''
  terminal.onData((data) => (text += data))
  const ended = new Promise<number>((resolve) => void terminal.onExit(({ exitCode }) => resolve(exitCode)))
  return {
    output: () => text.replaceAll(ESCAPES, '').replaceAll('\r\n', '\n'),
    write: (data) => terminal.write(data),
    ended,
  }
}

test('on a terminal, steps have their durations, and Ctrl-C stops every part in its order', async () => {
  using installation = await createInstallation()
  const terminal = startOnTerminal(installation)
  await until(() => / {2}Next .*\n/.test(terminal.output()), 'the banner', READY_DEADLINE_MS)
  terminal.write('\u0003')
  expect(await terminal.ended, terminal.output()).toBe(0)
  const { before, log } = partsOf(terminal.output())
  // The first two lines are those of npm.
  const steps = before.slice(2)
  expect(steps.filter((line) => !/^ {2}[a-z]+ .* \.\.\.\r {2}[a-z]+ .* \d+\.\d\d s$/.test(line))).toEqual([])
  expect(steps.length).toBeGreaterThan(3)
  // A database that answers slower than in 0.6 s is one of a busy machine, and said to be.
  const warnings = log.filter((line) => /WARN|ERROR|FATAL/.test(line) && !line.includes('failed to read the changelog'))
  expect(warnings, warnings.join('\n')).toEqual([])
  expect(log.join('\n')).toMatch(/\(worker\): stopped[^]*\(start\): stopped/)
})

test('Ctrl-C during the start ends it without more lines', async () => {
  using installation = await createInstallation()
  const terminal = startOnTerminal(installation)
  await until(() => terminal.output().includes('starting PostgreSQL'), 'the first step', READY_DEADLINE_MS)
  terminal.write('\u0003')
  expect(await terminal.ended, terminal.output()).toBe(0)
  expect(terminal.output()).not.toMatch(/INFO|WARN|ERROR|is running/)
})

test('a start that fails prints its warnings and then the reason', async () => {
  using installation = await createInstallation({
    SKEIN_DATABASE_URL: 'postgres://skein@127.0.0.1:1/skein',
    SKEIN_SECRET_KEY: Buffer.alloc(32, 1).toString('base64'),
    SKEIN_LOG_LEVLE: 'info',
  })
  await using whole = launch(installation)
  expect(await whole.ended).toBe(1)
  await whole.silent
  const lines = whole.output().trimEnd().split('\n')
  expect(lines.map((line) => line.replace(/.*"msg":"(.*?);.*/, '$1'))).toEqual([
    '  connecting to the database ...',
    'SKEIN_LOG_LEVLE is not a setting',
    expect.stringContaining('SKEIN_DATABASE_URL is unreachable') as string,
  ])
})

const { imports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { imports: Record<string, string> }
/** What `npm start` reads: the rooms, and the files and folders beside them. */
const CHECKOUT = [
  ...'package.json package-lock.json tsconfig.json migrations docs/guides programs console'.split(' '),
  ...Object.values(imports).map((path) => path.replace(/^\.\/|\/\*$/g, '')),
]

/** A checkout of its own, with the packages of this one, except what builds the console where `packages` says so. */
function checkout(packages: 'all' | 'production'): Disposable & { path: string } {
  const path = mkdtempSync(join(tmpdir(), 'skein-checkout-'))
  for (const name of CHECKOUT) cpSync(join(ROOT, name), join(path, name), { recursive: true })
  const modules = join(path, 'node_modules')
  mkdirSync(modules)
  for (const name of readdirSync(join(ROOT, 'node_modules')))
    if (name !== '.cache' && !name.startsWith('.v') && (packages === 'all' || name !== 'vite'))
      symlinkSync(join(ROOT, 'node_modules', name), join(modules, name))
  return {
    path,
    [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true, maxRetries: 5 }),
  }
}

test('the console is built before the banner; a build that is killed is repeated, and one that fails is explained', async () => {
  using installation = await createInstallation()
  using own = checkout('all')
  const program = join(own.path, 'programs', 'all.ts')
  const builds = join(own.path, 'node_modules', '.cache', 'console')
  {
    await using killed = launch(installation, program)
    await until(() => existsSync(builds) && readdirSync(builds).length > 0, 'the build', READY_DEADLINE_MS)
    killed.kill('SIGKILL')
    await killed.ended
  }
  {
    await using whole = await startWhole(installation, program)
    expect(await consoleStatus(whole)).toBe(200)
    expect(partsOf(whole.output()).before).toContain('  building the console ...')
    // The packages may be read-only.
    expect(existsSync(join(own.path, 'node_modules', '.vite-temp'))).toBe(false)
  }
  {
    await using whole = await startWhole(installation, program)
    expect(await consoleStatus(whole)).toBe(200)
    expect(partsOf(whole.output()).before).not.toContain('  building the console ...')
  }
  const source = join(own.path, 'console', 'main.tsx')
  writeFileSync(source, `${readFileSync(source, 'utf8')}\nno script (`)
  await using whole = await startWhole(installation, program)
  const page = await whole.call('GET', '/console')
  expect(page.status).toBe(503)
  expect(page.text).toMatch(/The build failed.*npm run console/)
  expect(partsOf(whole.output()).log.join('\n')).toMatch(/"level":50.*failed to build the console/)
})

test('without the packages that build it, the page of the console names the command that installs them', async () => {
  using installation = await createInstallation()
  using own = checkout('production')
  await using whole = await startWhole(installation, join(own.path, 'programs', 'all.ts'))
  const page = await whole.call('GET', '/console')
  expect(page.status).toBe(503)
  expect(page.text).toContain('npm ci --include=dev')
  expect(partsOf(whole.output()).before).not.toContain('  building the console ...')
})
