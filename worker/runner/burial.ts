/** What becomes of the runs that were under way in a runner that died, and of the modules that it was compiling. */
import type { PendingRun } from './run-request.ts'
import { runsUnderWay } from './runner.ts'
import type { Runner } from './runner.ts'
import type { Suspects } from './suspects.ts'

export type BurialDeps = {
  suspects: Suspects
  onModuleRefused: (moduleKey: string, reason: 'module_invalid', error: string) => void
}

/**
 * `culprits` are the runs whose threads did not end when they were told to, which brought the runner down; they have
 * ended. Everybody else is requeued, unless it was alone and took its runner with it.
 */
export function endRunsUnderWay(
  runner: Runner,
  culprits: readonly PendingRun[],
  cause: string,
  { suspects, onModuleRefused }: BurialDeps,
): void {
  const underWay = runsUnderWay(runner)
  const requeue = () => {
    for (const run of underWay) run.end({ state: 'requeue', cause: `the runner process died: ${cause}` })
  }
  if (culprits.length > 0) {
    suspects.foundTogether(culprits.map((run) => run.request))
    return requeue()
  }
  const loading = [...runner.modules].filter(([, module]) => module.state === 'loading')
  const [only] = underWay
  if (underWay.length === 1 && loading.length === 0 && only !== undefined) {
    const durationMs = 0
    if (runner.isOverMemory && hasGrownBy(runner, only)) {
      return only.end({ state: 'failed', reason: 'oom', error: cause, durationMs })
    }
    if (runner.isAlone && suspects.foundAlone(only.request)) {
      const error = `its runner process died each time it ran alone: ${cause}`
      return only.end({ state: 'failed', reason: 'trap', error, durationMs })
    }
  }
  for (const [moduleKey, module] of loading) {
    const isAlone = underWay.length === 0 && loading.length === 1 && suspects.mustRunAlone(module)
    if (!isAlone || !suspects.foundAlone(module)) continue
    onModuleRefused(moduleKey, 'module_invalid', `its runner process died while it was compiled: ${cause}`)
  }
  suspects.foundTogether([...underWay.map((run) => run.request), ...loading.map(([, module]) => module)])
  requeue()
}

/**
 * The engine gives memory back when it collects garbage: what a runner holds of the runs and modules that it had before is
 * not the fault of the run that is under way.
 */
function hasGrownBy({ givenModules, givenRuns }: Runner, run: PendingRun): boolean {
  return run.wasWithinMemory || (givenModules <= 1 && givenRuns <= 1)
}
