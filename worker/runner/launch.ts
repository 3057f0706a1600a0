/**
 * Starts a runner process with as little as it can live with: beside what isolation leaves it, its own code and the
 * module cache to read, threads, the channel to its parent, and its error output.
 */
import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { join } from 'node:path'
import { isolate, preferToLose, stageCode, toStagedPath } from '../isolation/index.ts'

const RUNNER_ENTRY = 'worker/runner/entry.ts'
const LANE_ENTRY = 'worker/runner/lane.ts'
/** Heap of a runner's main thread; modules lie outside of it. */
const MAX_MAIN_HEAP_MIB = 128

export type LaunchOptions = {
  /** Folder of the runner's code, as `stageRunnerCode` laid it out. */
  codeFolder: string
  /** Folder of the modules; beside the code, the only one that a runner may read. */
  modulesFolder: string
  /** Number of the runner within its pool, which decides its user. */
  index: number
}

/** Lays out the code of runners below `folder` and answers where. */
export function stageRunnerCode(folder: string): Promise<string> {
  return stageCode(folder, {
    entries: [RUNNER_ENTRY, LANE_ENTRY],
    packages: [{ name: '@bjorn3/browser_wasi_shim' }],
  })
}

export function launchRunner({ codeFolder, modulesFolder, index }: LaunchOptions): ChildProcess {
  const { options, ...node } = isolate({
    readable: [codeFolder, modulesFolder],
    user: index,
    maxHeapMib: MAX_MAIN_HEAP_MIB,
    flags: [
      // Threads of the runner; they inherit the permissions.
      '--allow-worker',
      '--expose-gc',
      // Short-lived messages are all that is allocated: a small nursery costs nothing and is paid per lane.
      '--max-semi-space-size=1',
    ],
  })
  const child = fork(join(codeFolder, toStagedPath(RUNNER_ENTRY)), [], {
    ...options,
    ...node,
    serialization: 'json',
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  })
  preferToLose(child.pid)
  return child
}
