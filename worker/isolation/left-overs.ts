/**
 * Processes that an earlier process left behind when it was killed. Bubblewrap (seen with 0.8) creates its child first and makes both die with their parent
 * afterwards: if the parent is killed in these milliseconds, the child waits for ever to be released (containers/bubblewrap, issue 633).
 */
import { readFileSync, readdirSync } from 'node:fs'

/**
 * Kills the processes that were isolated with code below `folder` and returns how many. The caller must be the only user of the folder and
 * have started none itself.
 */
export function endLeftOvers(folder: string): number {
  if (process.platform !== 'linux') return 0
  const found = readdirSync('/proc').filter((entry) => isIsolatedIn(folder, entry))
  return found.filter((pid) => wasKilled(Number(pid))).length
}

function isIsolatedIn(folder: string, pid: string): boolean {
  try {
    const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
    return line.split('\0').some((argument) => argument.startsWith(`--allow-fs-read=${folder}/`))
  } catch {
    // Not a process, or one that has just ended.
    return false
  }
}

function wasKilled(pid: number): boolean {
  try {
    return process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended, or is another user's, who cannot have started it for this worker.
    return false
  }
}
