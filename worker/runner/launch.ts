/**
 * Starts a runner process with as little as it can live with: it may read its own code and the module cache and nothing
 * else, has no environment, no descriptor but the channel and its error output, and, where we are root, a user of its own.
 */
import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { RUNNER_ENTRY, toStagedPath } from './staging.ts'

/**
 * Users of runner processes: 60578 to 61183 are assigned to nobody (systemd, "Users, Groups, UIDs and GIDs"). One per
 * runner, so that a guest that broke out cannot even signal its neighbours.
 */
const FIRST_RUNNER_UID = 60_600

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

export function launchRunner(options: LaunchOptions): ChildProcess {
  const readable = [`${options.codeFolder}/*`, `${options.modulesFolder}/*`]
  const isRoot = process.getuid?.() === 0
  const user = FIRST_RUNNER_UID + options.index
  const child = fork(join(options.codeFolder, toStagedPath(RUNNER_ENTRY)), [], {
    // The binary may lie below a folder that the runner's user cannot enter; this name needs no path to it.
    ...(isRoot && process.platform === 'linux' ? { execPath: '/proc/self/exe' } : {}),
    execArgv: [
      '--permission',
      ...readable.map((path) => `--allow-fs-read=${path}`),
      // Threads of the runner; they inherit the permissions.
      '--allow-worker',
      '--disallow-code-generation-from-strings',
      // A signal must not open an inspector port.
      '--disable-sigusr1',
      '--expose-gc',
      '--no-warnings',
      `--max-old-space-size=${MAX_MAIN_HEAP_MIB}`,
      // Short-lived messages are all that is allocated: a small nursery costs nothing and is paid per lane.
      '--max-semi-space-size=1',
    ],
    env: {},
    cwd: '/',
    serialization: 'json',
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    ...(isRoot ? { uid: user, gid: user } : {}),
  })
  if (child.pid !== undefined && process.platform === 'linux') preferToLose(child.pid)
  return child
}

/** When the machine itself runs out of memory, the kernel shall end a runner and nothing else. */
function preferToLose(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, '1000')
  } catch {
    // A hint: where it is not allowed, the supervisor's own limits still hold.
  }
}
