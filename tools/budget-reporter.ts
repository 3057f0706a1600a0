/**
 * A vitest reporter of the time of each suite against its budget. To the file in `SUMMARY_FILE` it writes a line with the
 * numbers of passed, failed and skipped tests, then a line for each failure: file, test and reason. A suite over its
 * budget is reported, not failed: a busy machine proves nothing.
 */
import { writeFileSync } from 'node:fs'
import { stripVTControlCharacters } from 'node:util'
import type { SerializedError } from 'vitest'
import type { Reporter, TestCase, TestModule } from 'vitest/node'

/** Minutes on two cores; the sum is below 75, and some suites overlap. */
const BUDGET_MINUTES: Readonly<Record<string, number>> = {
  unit: 1,
  architecture: 1,
  api: 9,
  fuzz: 3,
  matrix: 4,
  security: 7,
  database: 3,
  worker: 3,
  tasks: 4,
  proxy: 2,
  faults: 6,
  cluster: 5,
  openapi: 8,
  console: 4,
  containers: 5,
  programs: 3,
  compatibility: 4,
  recipes: 4,
}

/** Of the reason of a failure, in characters: a log keeps its end, and all failures shall stand there. */
const REASON_CHARACTERS = 300

type Suite = { name: string; files: number; running: number; since: number; busyMs: number }

// oxlint-disable-next-line import/no-default-export -- vitest loads a reporter from the default export
export default class BudgetReporter implements Reporter {
  readonly #suites = new Map<string, Suite>()

  onTestModuleQueued({ project: { name } }: TestModule): void {
    const suite = this.#suites.get(name) ?? { name, files: 0, running: 0, since: 0, busyMs: 0 }
    if (suite.running === 0) suite.since = performance.now()
    suite.running += 1
    suite.files += 1
    this.#suites.set(name, suite)
  }

  onTestModuleEnd({ project: { name } }: TestModule): void {
    const suite = this.#suites.get(name)
    if (suite === undefined) return
    suite.running -= 1
    // Files of one suite overlap: the busy time is the time in which any of them ran.
    if (suite.running === 0) suite.busyMs += performance.now() - suite.since
  }

  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    const sums = { passed: 0, failed: unhandled.length, skipped: 0 }
    const failures = unhandled.map(({ message }) => lineOfFailure('outside of a test', message))
    for (const module of modules) {
      const failedBefore = sums.failed
      for (const test of module.children.allTests()) {
        const { state } = test.result()
        if (state === 'passed') sums.passed += 1
        else if (state === 'failed') {
          sums.failed += 1
          failures.push(lineOfFailure(nameOf(module, test), reasonOf(test.result().errors)))
        } else sums.skipped += 1
      }
      // An unreadable file or a failing hook has no failed test.
      if (module.state() === 'failed' && sums.failed === failedBefore) {
        sums.failed += 1
        failures.push(lineOfFailure(module.relativeModuleId, reasonOf(module.errors())))
      }
    }
    const lines = [...this.#suites.values()].map(lineOf)
    console.log(['', 'Suites, with the time in which any of their files ran:', ...lines, ''].join('\n'))
    const file = process.env['SUMMARY_FILE']
    if (file === undefined) return
    writeFileSync(file, [`${sums.passed} ${sums.failed} ${sums.skipped}`, ...failures, ''].join('\n'))
  }
}

function nameOf(module: TestModule, test: TestCase): string {
  return `${module.relativeModuleId} > ${test.fullName}`
}

function reasonOf(errors: readonly { message: string }[] | undefined): string {
  return errors?.[0]?.message ?? 'without a reason'
}

function lineOfFailure(name: string, reason: string): string {
  return `${name}: ${stripVTControlCharacters(reason).replaceAll(/\s+/g, ' ').slice(0, REASON_CHARACTERS)}`
}

function lineOf({ name, files, busyMs }: Suite): string {
  const seconds = busyMs / 1000
  const budget = (BUDGET_MINUTES[name] ?? 0) * 60
  const verdict = budget === 0 ? 'no budget' : `of ${budget} s${seconds > budget ? ', OVER BUDGET' : ''}`
  return `  ${name.padEnd(14)}${String(files).padStart(4)} files ${seconds.toFixed(1).padStart(8)} s ${verdict}`
}
