/**
 * Runs the files of failed tests once more, alone: `node test/suites/unsteady.ts FAILURES`, where FAILURES has a line for each failure as
 * `.ci/run` collects them. A failure whose file passes then is unsteady; the others stay. FAILURES is written again with the rest, and
 * SUMMARY_FILE receives `N`, the number of unsteady ones, and a line for each.
 */
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

/** More than these is no chance: then nothing runs again. */
export const MAX_FILES = 5
const ROOT = join(import.meta.dirname, '..', '..')
/** Of all that runs again for one suite. */
const DEADLINE_MS = 15 * 60_000

export type Again = { suite: string | undefined; files: string[]; lines: string[] }

const IN_GATE = 'failed in npm test: '
const IN_SUITES = 'failed in long suites: '
/** What a suite, and the path of a test file, are made of. */
const SUITE = /^[a-z]+$/
const FILE = /^test\/[\w./-]+\.test\.ts$/

/** What one line says of: the suite (undefined for the gate) and the file, or undefined when it is about no test file. */
function subjectOf(line: string): { suite: string | undefined; file: string } | undefined {
  let rest = line
  let suite: string | undefined
  if (line.startsWith(IN_GATE)) rest = line.slice(IN_GATE.length)
  else if (line.startsWith(IN_SUITES)) {
    const [name = '', ...others] = line.slice(IN_SUITES.length).split(': ')
    if (!SUITE.test(name)) return undefined
    suite = name
    rest = others.join(': ')
  } else return undefined
  // A failing test is `FILE > NAMES: REASON`, a failing hook or import `FILE: REASON`.
  const file = rest.split(' > ', 1)[0]?.split(': ', 1)[0] ?? ''
  return FILE.test(file) ? { suite, file } : undefined
}

/** What is to run again, by suite; nothing when a failure is about no test file, or when there are too many. */
export function runsAgain(failures: readonly string[]): Again[] {
  const bySuite = new Map<string | undefined, Again>()
  const files = new Set<string>()
  for (const line of failures) {
    const subject = subjectOf(line)
    if (subject === undefined) return []
    const again = bySuite.get(subject.suite) ?? { suite: subject.suite, files: [], lines: [] }
    bySuite.set(subject.suite, again)
    if (!again.files.includes(subject.file)) again.files.push(subject.file)
    again.lines.push(line)
    files.add(`${subject.suite ?? ''} ${subject.file}`)
  }
  return files.size > MAX_FILES ? [] : [...bySuite.values()]
}

/** A run of a suite that has none of the files is no failure: a suite can be several runs. */
export function commandOf({ suite, files }: Again): string[] {
  return suite === undefined
    ? ['npm', 'test', '--', '--maxWorkers=1', ...files]
    : ['npm', 'run', '--silent', 'suites', '--', suite, '--', '--passWithNoTests', '--maxWorkers=1', ...files]
}

function main(path: string): void {
  const failures = readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
  const unsteady: string[] = []
  for (const again of runsAgain(failures)) {
    const [program = '', ...args] = commandOf(again)
    console.log(`-- ${[program, ...args].join(' ')}`)
    const { SUMMARY_FILE: _own, ...env } = process.env
    const { status } = spawnSync(program, args, { cwd: ROOT, stdio: 'inherit', env, timeout: DEADLINE_MS })
    if (status === 0) unsteady.push(...again.lines)
  }
  writeFileSync(
    path,
    failures
      .filter((line) => !unsteady.includes(line))
      .map((line) => `${line}\n`)
      .join(''),
  )
  const summary = process.env['SUMMARY_FILE']
  if (summary !== undefined) writeFileSync(summary, [String(unsteady.length), ...unsteady, ''].join('\n'))
}

const [, program, path] = process.argv
if (path !== undefined && program !== undefined && import.meta.url === pathToFileURL(program).href) main(path)
