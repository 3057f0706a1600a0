/**
 * How a process is started that handles what tenants sent: it may read the folders that are named and nothing else, has
 * no environment, makes no code from text, and, where we are root, has a user of its own.
 */
import { writeFileSync } from 'node:fs'

/** Users of such processes: 60578 to 61183 are assigned to nobody (systemd, "Users, Groups, UIDs and GIDs"). */
const FIRST_UID = 60_600
const MAX_USERS = 583

export type IsolatedLaunch = {
  /** Folders that it may read, with everything below. */
  readable: string[]
  /** Number of its user among ours, so that a guest that broke out cannot even signal its neighbours. */
  user: number
  /** Heap of its main thread. */
  maxHeapMib: number
  /** Flags of the engine beyond those that isolate. */
  flags: string[]
}

export type IsolatedOptions = {
  execPath: string
  execArgv: string[]
  options: { env: Record<string, string>; cwd: string; uid?: number; gid?: number }
}

export function isolate({ readable, user, maxHeapMib, flags }: IsolatedLaunch): IsolatedOptions {
  const isRoot = process.getuid?.() === 0
  const uid = FIRST_UID + (user % MAX_USERS)
  return {
    // The binary may lie below a folder that the other user cannot enter; this name needs no path to it.
    execPath: isRoot && process.platform === 'linux' ? '/proc/self/exe' : process.execPath,
    execArgv: [
      '--permission',
      ...readable.map((folder) => `--allow-fs-read=${folder}/*`),
      '--disallow-code-generation-from-strings',
      // A signal must not open an inspector port.
      '--disable-sigusr1',
      '--no-warnings',
      `--max-old-space-size=${maxHeapMib}`,
      ...flags,
    ],
    options: { env: {}, cwd: '/', ...(isRoot ? { uid, gid: uid } : {}) },
  }
}

/** When the machine itself runs out of memory, the kernel shall end this process and nothing else. */
export function preferToLose(pid: number | undefined): void {
  if (pid === undefined || process.platform !== 'linux') return
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, '1000')
  } catch {
    // A hint: where it is not allowed, the supervisor's own limits still hold.
  }
}
