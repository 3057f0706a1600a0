/**
 * A vitest reporter of the time of each suite: how long any of its files ran, and what the files together spent on start-up (imports and
 * hooks) and on tests. To the file in `SUMMARY_FILE` it writes a line with the numbers of passed, failed and skipped tests, then a line
 * for each failure: file, test and reason.
 */
import { writeFileSync } from 'node:fs'
import { stripVTControlCharacters } from 'node:util'
import type { SerializedError } from 'vitest'
import type { Reporter, TestCase, TestModule } from 'vitest/node'

/** The length of the reason of a failure: a log keeps its end, and all failures must be there. */
const REASON_CHARACTERS = 300

type Suite = {
  name: string
  files: number
  running: number
  since: number
  busyMs: number
  startUpMs: number
  testsMs: number
}

// oxlint-disable-next-line import/no-default-export -- vitest loads a reporter from the default export
export default class SuiteReporter implements Reporter {
  readonly #suites = new Map<string, Suite>()

  onTestModuleQueued({ project: { name } }: TestModule): void {
    const suite = this.#suites.get(name) ?? {
      name,
      files: 0,
      running: 0,
      since: 0,
      busyMs: 0,
      startUpMs: 0,
      testsMs: 0,
    }
    if (suite.running === 0) suite.since = performance.now()
    suite.running += 1
    suite.files += 1
    this.#suites.set(name, suite)
  }

  onTestModuleEnd(module: TestModule): void {
    const suite = this.#suites.get(module.project.name)
    if (suite === undefined) return
    const { environmentSetupDuration, prepareDuration, collectDuration, setupDuration, duration } = module.diagnostic()
    const testsMs = [...module.children.allTests()].reduce((sum, test) => sum + (test.diagnostic()?.duration ?? 0), 0)
    suite.testsMs += testsMs
    // `duration` has tests and hooks. Tests that run concurrently can take longer together.
    suite.startUpMs +=
      environmentSetupDuration + prepareDuration + collectDuration + setupDuration + Math.max(0, duration - testsMs)
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
        failures.push(lineOfFailure(module.relativeModuleId, reasonOf(errorsOutsideOfTests(module))))
      }
    }
    const lines = [...this.#suites.values()].map(lineOf)
    console.log(['', HEADING, ...lines, ''].join('\n'))
    const file = process.env['SUMMARY_FILE']
    if (file === undefined) return
    writeFileSync(file, [`${sums.passed} ${sums.failed} ${sums.skipped}`, ...failures, ''].join('\n'))
  }
}

function nameOf(module: TestModule, test: TestCase): string {
  return `${module.relativeModuleId} > ${test.fullName}`
}

/** The errors of the file, and of the hooks of its suites at any depth. */
function errorsOutsideOfTests(module: TestModule): readonly { message: string }[] {
  return [...module.errors(), ...[...module.children.allSuites()].flatMap((suite) => suite.errors())]
}

function reasonOf(errors: readonly { message: string }[] | undefined): string {
  return errors?.[0]?.message ?? 'without a reason'
}

function lineOfFailure(name: string, reason: string): string {
  return `${name}: ${stripVTControlCharacters(reason).replaceAll(/\s+/g, ' ').slice(0, REASON_CHARACTERS)}`
}

const HEADING = '  suite           files     ran for    start-up       tests   (seconds)'

function lineOf({ name, files, busyMs, startUpMs, testsMs }: Suite): string {
  const seconds = (ms: number) => (ms / 1000).toFixed(1).padStart(12)
  return `  ${name.padEnd(16)}${String(files).padStart(5)}${seconds(busyMs)}${seconds(startUpMs)}${seconds(testsMs)}`
}
