/** Ends or requeues the runs of a runner that exited, and refuses the module that crashed it while it was compiled. */
import type { PendingRun } from './run-request.ts'
import { runsUnderWay, servedBy } from './runner.ts'
import type { Runner } from './runner.ts'
import type { CrashQuarantine } from './crash-quarantine.ts'

export type RunnerExitDeps = {
  quarantine: CrashQuarantine
  onModuleRefused: (moduleKey: string, reason: 'module_invalid', error: string) => void
}

/**
 * `culprits` are the runs whose threads did not end in time, for which the runner was killed; they have ended. Every
 * other run is requeued, unless it was alone in the runner.
 */
export function onRunnerExit(
  runner: Runner,
  culprits: readonly PendingRun[],
  cause: string,
  { quarantine, onModuleRefused }: RunnerExitDeps,
): void {
  const underWay = runsUnderWay(runner)
  const requeue = () => {
    for (const run of underWay) run.end({ state: 'requeue', cause: `the runner process died: ${cause}` })
  }
  if (culprits.length > 0) {
    quarantine.recordSharedCrash(culprits.map((run) => run.request))
    return requeue()
  }
  const loading = [...runner.modules].filter(([, module]) => module.state === 'loading')
  const [only] = underWay
  if (underWay.length === 1 && loading.length === 0 && only !== undefined) {
    const durationMs = 0
    if (runner.isOverMemory && hasGrownBy(runner, only)) {
      return only.end({ state: 'failed', reason: 'oom', error: cause, durationMs })
    }
    if (runner.isAlone && quarantine.recordLoneCrash(only.request)) {
      const error = `its runner process died each time it ran alone: ${cause}`
      return only.end({ state: 'failed', reason: 'trap', error, durationMs })
    }
  }
  for (const [moduleKey, module] of loading) {
    const isAlone = underWay.length === 0 && loading.length === 1 && quarantine.mustRunAlone(module)
    if (!isAlone || !quarantine.recordLoneCrash(module)) continue
    onModuleRefused(moduleKey, 'module_invalid', `its runner process died while it was compiled: ${cause}`)
  }
  quarantine.recordSharedCrash([...underWay.map((run) => run.request), ...loading.map(([, module]) => module)])
  requeue()
}

/**
 * The engine releases memory when it collects garbage, so a runner may still hold memory of other runs and modules. The run
 * under way is charged only if the runner was within its budget at a check during the run and nothing else was served since, or
 * has served nothing else.
 */
function hasGrownBy(runner: Runner, run: PendingRun): boolean {
  return run.withinMemoryAt === servedBy(runner) || (runner.sentModules <= 1 && runner.sentRuns <= 1)
}
