import { expect, test } from 'vitest'
import { onRunnerExit } from './runner-exit.ts'
import type { PendingRun, RunOutcome } from './run-request.ts'
import type { Runner } from './runner.ts'
import { CrashQuarantine } from './crash-quarantine.ts'

const GUEST = { domain: 'one', digest: 'sha256:1' }

/** The end of the only active run in a runner that was killed for its memory. */
function endInOverfullRunner(
  given: { modules: number; runs: number; withinMemoryAt: number | undefined },
  quarantine = new CrashQuarantine(),
) {
  const outcomes: RunOutcome[] = []
  const run: Partial<PendingRun> = {
    request: GUEST as PendingRun['request'],
    withinMemoryAt: given.withinMemoryAt,
    end: (outcome) => void outcomes.push(outcome),
  }
  const runner: Partial<Runner> = {
    threads: [
      { index: 0, isReady: true, runs: [run as PendingRun], headSinceMs: 0, isRecalling: false, killing: undefined },
    ],
    modules: new Map(),
    isAlone: false,
    isOverMemory: true,
    sentModules: given.modules,
    sentRuns: given.runs,
  }
  onRunnerExit(runner as Runner, [], 'too much memory', { quarantine, onModuleRefused: () => undefined })
  return { outcomes, quarantine }
}

test.each([
  ['the first run of its runner', { modules: 1, runs: 1, withinMemoryAt: undefined }],
  ['a run in which the runner grew', { modules: 4, runs: 90, withinMemoryAt: 4 + 89 }],
])('%s ends with oom', (_, given) => {
  expect(endInOverfullRunner(given).outcomes).toMatchObject([{ state: 'failed', reason: 'oom' }])
})

test('a run in a runner that exceeded its memory before is requeued, and runs alone after three times', () => {
  const quarantine = new CrashQuarantine()
  for (let times = 1; times <= 3; times++) {
    expect(quarantine.mustRunAlone(GUEST)).toBe(false)
    const { outcomes } = endInOverfullRunner({ modules: 4, runs: 90, withinMemoryAt: undefined }, quarantine)
    expect(outcomes).toMatchObject([{ state: 'requeue' }])
  }
  expect(quarantine.mustRunAlone(GUEST)).toBe(true)
})

test.each([
  ['run that ended', 4 + 88],
  ['module that was loaded or refused', 3 + 89],
])('a run is not charged for the memory of a %s beside it since the last check', (_, withinMemoryAt) => {
  expect(endInOverfullRunner({ modules: 4, runs: 90, withinMemoryAt }).outcomes).toMatchObject([{ state: 'requeue' }])
})
