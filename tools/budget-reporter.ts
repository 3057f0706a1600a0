/**
 * A vitest reporter that says how long each suite took against its budget, and writes the numbers of passed, failed
 * and skipped tests to the file that `SUMMARY_FILE` names. A suite over its budget is shown, not failed: a busy machine proves nothing.
 */
import { writeFileSync } from 'node:fs'
import type { SerializedError } from 'vitest'
import type { Reporter, TestModule } from 'vitest/node'

/** Minutes on two cores; together they stay below 55, and some of them overlap. */
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
  openapi: 8,
  programs: 3,
}

type Suite = { name: string; files: number; running: number; since: number; busyMs: number }

// oxlint-disable-next-line import/no-default-export -- vitest takes a reporter of a file by its default export
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
    // Files of one suite overlap: what counts is the time in which any of them ran.
    if (suite.running === 0) suite.busyMs += performance.now() - suite.since
  }

  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    const sums = { passed: 0, failed: unhandled.length, skipped: 0 }
    for (const module of modules) {
      const failedBefore = sums.failed
      for (const test of module.children.allTests()) {
        const { state } = test.result()
        if (state === 'passed') sums.passed += 1
        else if (state === 'failed') sums.failed += 1
        else sums.skipped += 1
      }
      // A file that could not be read, or a hook that threw, fails without a failed test.
      if (module.state() === 'failed' && sums.failed === failedBefore) sums.failed += 1
    }
    const lines = [...this.#suites.values()].map(lineOf)
    console.log(['', 'Suites, in the time that any file of theirs ran:', ...lines, ''].join('\n'))
    const file = process.env['SUMMARY_FILE']
    if (file !== undefined) writeFileSync(file, `${sums.passed} ${sums.failed} ${sums.skipped}\n`)
  }
}

function lineOf({ name, files, busyMs }: Suite): string {
  const seconds = busyMs / 1000
  const budget = (BUDGET_MINUTES[name] ?? 0) * 60
  const verdict = budget === 0 ? 'no budget' : `of ${budget} s${seconds > budget ? ', OVER BUDGET' : ''}`
  return `  ${name.padEnd(14)}${String(files).padStart(4)} files ${seconds.toFixed(1).padStart(8)} s ${verdict}`
}
