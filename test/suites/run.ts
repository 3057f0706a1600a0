/**
 * Runs long suites: `npm run suites [-- [--due] [--record] [name…] [-- arguments of vitest]]`.
 *
 *   --due     leaves out suites with a valid record, and says why (`.ci/run`)
 *   --record  writes a record of each successful run of a clean checkout, to be committed (test/suites/records/)
 *
 * Ends with `N passed, N failed`, and with status 1 when anything failed. SUMMARY_FILE receives the sums as that of the reporter does.
 */
import { spawn } from 'node:child_process'
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join, relative } from 'node:path'
import { digestsAt, headOf, isSuccess, isSuiteDue, uncommitted, writeRecord } from './records.ts'
import type { Summary } from './records.ts'
import { HARNESS, SUITE_NAMES, suiteOf } from './table.ts'
import type { LongSuite, SuiteName } from './table.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const FOLDER = { root: ROOT, records: join(import.meta.dirname, 'records') }
const REPORTERS = ['--reporter=default', '--reporter=./tools/suite-reporter.ts']

const given = process.argv.slice(2)
const split = given.includes('--') ? given.indexOf('--') : given.length
const options = given.slice(0, split)
const vitestArguments = given.slice(split + 1)
const isDueOnly = options.includes('--due')
const isRecording = options.includes('--record')
const names = options.filter((option) => !option.startsWith('--'))
const wrong = [
  ...names.filter((name) => !SUITE_NAMES.includes(name as SuiteName)),
  ...options.filter((option) => option.startsWith('--') && !['--due', '--record'].includes(option)),
]
if (wrong.length > 0) {
  console.error(`unknown: ${wrong.join(', ')}. Suites: ${SUITE_NAMES.join(', ')}. Options: --due, --record`)
  process.exit(2)
}
if (isRecording && vitestArguments.length > 0) {
  console.error('--record needs the whole suite: no arguments of vitest')
  process.exit(2)
}

/** Stopped with the signal that stops us, so that nothing is left behind. */
let stop: (() => void) | undefined
let isStopped = false
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.on(signal, () => {
    isStopped = true
    stop?.()
  })

async function runCommand(command: readonly string[], env: NodeJS.ProcessEnv): Promise<number> {
  const [program = '', ...args] = command
  const child = spawn(program, args, { cwd: ROOT, env, stdio: ['ignore', 'inherit', 'inherit'] })
  stop = () => child.kill('SIGTERM')
  return await new Promise((resolve) => {
    child.once('error', (error) => {
      console.error(`${program} cannot be started: ${error.message}`)
      resolve(127)
    })
    child.once('exit', (code) => resolve(code ?? 1))
  })
}

/** Replaces `$NAME` at the beginning of a value by the variable. */
const expand = (value: string, env: NodeJS.ProcessEnv) =>
  value.replace(/^\$([A-Z_]+)/, (_whole, name: string) => env[name] ?? '')

async function prepare(suite: LongSuite, work: string, env: NodeJS.ProcessEnv): Promise<string | undefined> {
  for (const { script, variable, path } of suite.prepare) {
    // Installed by the caller.
    if (variable !== 'PATH' && env[variable] !== undefined) continue
    const folder = join(work, variable.toLowerCase())
    console.log(`-- ${script}`)
    if ((await runCommand([script, folder], env)) !== 0) return `${script} failed`
    const value = path === undefined ? folder : join(folder, path)
    env[variable] = variable === 'PATH' ? `${value}${delimiter}${env[variable] ?? ''}` : value
  }
  return undefined
}

type Outcome = Summary & { failures: string[] }

async function runSuite(name: SuiteName, suite: LongSuite): Promise<Outcome> {
  const began = performance.now()
  const outcome: Outcome = { passed: 0, failed: 0, skipped: 0, seconds: 0, failures: [] }
  const fail = (reason: string) => {
    outcome.failed += 1
    outcome.failures.push(`${name}: ${reason}`)
  }
  // Open, because PostgreSQL runs as another user where we are root.
  const work = mkdtempSync(join(tmpdir(), `suite-${name}-`))
  chmodSync(work, 0o755)
  const bin = join(ROOT, 'node_modules', '.bin')
  const env: NodeJS.ProcessEnv = { ...process.env, PATH: `${bin}${delimiter}${process.env['PATH'] ?? ''}` }
  try {
    const reason = await prepare(suite, work, env)
    if (reason !== undefined) fail(reason)
    else
      for (const run of suite.runs) {
        if (isStopped) break
        const summaryFile = join(work, 'summary')
        rmSync(summaryFile, { force: true })
        const own = Object.entries(run.environment ?? {}).map(([key, value]) => [key, expand(value, env)])
        const status = await runCommand([...run.command, ...REPORTERS, ...vitestArguments], {
          ...env,
          ...Object.fromEntries(own),
          SUMMARY_FILE: summaryFile,
        })
        addSummary(outcome, name, summaryFile)
        if (status !== 0 && outcome.failed === 0) fail(`did not come to an end (status ${status})`)
      }
  } finally {
    rmSync(work, { recursive: true, force: true, maxRetries: 5 })
  }
  if (isStopped) fail('was stopped')
  outcome.seconds = Math.round((performance.now() - began) / 1000)
  return outcome
}

function addSummary(outcome: Outcome, name: string, file: string): void {
  if (!existsSync(file)) return
  const [sums = '', ...failures] = readFileSync(file, 'utf8').trimEnd().split('\n')
  const [passed = 0, failed = 0, skipped = 0] = sums.split(' ').map(Number)
  outcome.passed += passed
  outcome.failed += failed
  outcome.skipped += skipped
  outcome.failures.push(...failures.map((line) => `${name}: ${line}`))
}

const pathsOf = (suite: LongSuite) => [...suite.paths, ...HARNESS]

function record(name: SuiteName, suite: LongSuite, commit: string | undefined, outcome: Outcome): void {
  const { passed, failed, skipped, seconds } = outcome
  const refuse = (reason: string) => console.log(`-- no record of ${name}: ${reason}`)
  if (!isSuccess(outcome)) return refuse(`${passed} passed, ${failed} failed, ${skipped} skipped`)
  const paths = pathsOf(suite)
  const digests = commit === undefined ? undefined : digestsAt(ROOT, commit, paths)
  if (commit === undefined || digests === undefined) return refuse('a guarded path is not committed')
  if (headOf(ROOT) !== commit) return refuse('another commit was checked out during the run')
  const dirty = uncommitted(ROOT, paths)
  if (dirty === undefined || dirty.length > 0) return refuse(`not committed: ${dirty?.slice(0, 3).join(', ')}`)
  const summary = { passed, failed, skipped, seconds }
  const file = writeRecord(FOLDER, {
    suite: name,
    commit,
    finished_at: new Date().toISOString(),
    digests,
    summary,
  })
  console.log(`-- recorded in ${relative(ROOT, file)}; commit it`)
}

const total: Outcome = { passed: 0, failed: 0, skipped: 0, seconds: 0, failures: [] }
const lines: string[] = []
for (const name of names.length === 0 ? SUITE_NAMES : (names as SuiteName[])) {
  if (isStopped) break
  const suite = suiteOf(name)
  const verdict = isDueOnly ? isSuiteDue(FOLDER, name, pathsOf(suite), Date.now()) : undefined
  if (verdict?.isDue === false) {
    lines.push(`${name.padEnd(12)} left out: ${verdict.why}`)
    continue
  }
  console.log(`\n== ${name}: ${suite.subject}${verdict === undefined ? '' : ` (runs: ${verdict.why})`}`)
  const commit = headOf(ROOT)
  const outcome = await runSuite(name, suite)
  if (isRecording) record(name, suite, commit, outcome)
  const { passed, failed, skipped, seconds } = outcome
  const why = verdict === undefined ? '' : ` (${verdict.why})`
  lines.push(`${name.padEnd(12)} ${passed} passed, ${failed} failed, ${skipped} skipped in ${seconds} s${why}`)
  total.passed += passed
  total.failed += failed
  total.skipped += skipped
  total.failures.push(...outcome.failures)
}

console.log(`\nLong suites:\n${lines.map((line) => `  ${line}`).join('\n')}\n`)
for (const failure of total.failures) console.log(`failed in ${failure}`)
console.log(`${total.passed} passed, ${total.failed} failed${total.skipped === 0 ? '' : `, ${total.skipped} skipped`}`)
const summaryFile = process.env['SUMMARY_FILE']
if (summaryFile !== undefined)
  writeFileSync(summaryFile, [`${total.passed} ${total.failed} ${total.skipped}`, ...total.failures, ''].join('\n'))
process.exitCode = total.failed === 0 ? 0 : 1
