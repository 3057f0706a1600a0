/** The staged code of a runner: its own and that of the WASI shim. */
import { stageCode } from '../isolation/index.ts'
import type { StagingSpec } from '../isolation/index.ts'

export const RUNNER_ENTRY = 'worker/runner/entry.ts'
const GUEST_THREAD_ENTRY = 'worker/runner/guest-thread.ts'

export const RUNNER_CODE = {
  name: 'runner',
  entries: [RUNNER_ENTRY, GUEST_THREAD_ENTRY],
  packages: [{ name: '@bjorn3/browser_wasi_shim' }],
} satisfies StagingSpec

/** Stages the code of runners below `folder` and returns its path. */
export function stageRunnerCode(folder: string): Promise<string> {
  return stageCode(folder, RUNNER_CODE)
}
