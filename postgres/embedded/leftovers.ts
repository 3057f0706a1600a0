/**
 * Ends the processes of a Skein that was killed. Its database server survives it and is restarted instead of reused, because its
 * log pipe is broken and its settings may be those of an older version. Requires the folder's lock.
 */
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { findServerProcesses, isAlive, isServerOf, sendSignal, waitForEnd } from '#core/processes.ts'
import { SOCKET_PORT } from './socket.ts'

export type Leftovers = {
  clusterDir: string
  socketDir: string
  clusterName: string
  log: (line: string) => void
}

const FAST_STOP_MS = 15_000
const QUIT_MS = 3000
const KILL_MS = 3000

/** Stops the processes that an earlier server left. If `isThorough` is true, it checks every process, also without a `postmaster.pid`. */
export async function endLeftovers(leftovers: Leftovers, isThorough: boolean): Promise<void> {
  const { clusterDir, log } = leftovers
  const pid = readPostmasterPid(clusterDir)
  if (pid === undefined && !isThorough) return
  if (pid !== undefined && isAlive(pid)) {
    if (await isServerOf(clusterDir, pid)) {
      log(`a PostgreSQL server (pid ${pid}) is left from an earlier run of Skein; stopping it`)
      await endServer(pid)
    } else {
      log(`postmaster.pid names process ${pid}, which is not a server of this folder; removing it`)
    }
  }
  if (await endOrphans(leftovers)) removePidFiles(leftovers)
}

/** The process id in `postmaster.pid` (its first line); undefined without the file. */
export function readPostmasterPid(clusterDir: string): number | undefined {
  try {
    const pid = Number.parseInt(readFileSync(join(clusterDir, 'postmaster.pid'), 'utf8'), 10)
    return Number.isSafeInteger(pid) && pid > 0 ? pid : undefined
  } catch {
    return undefined
  }
}

async function endServer(pid: number): Promise<void> {
  sendSignal(pid, 'SIGINT')
  if (await waitForEnd(pid, FAST_STOP_MS)) return
  sendSignal(pid, 'SIGQUIT')
  if (await waitForEnd(pid, QUIT_MS)) return
  sendSignal(pid, 'SIGKILL')
  await waitForEnd(pid, KILL_MS)
}

/**
 * Backends of a killed postmaster exit when their current statement ends, which can take minutes. The new server cannot start
 * before. Their uncommitted work is lost in any case. False when a backend cannot be ended (it waits for a disk that does not
 * answer).
 */
async function endOrphans({ clusterDir, clusterName }: Leftovers): Promise<boolean> {
  const orphans = await findServerProcesses(clusterDir, clusterName)
  for (const pid of orphans) sendSignal(pid, 'SIGQUIT')
  let isClear = true
  for (const pid of orphans) {
    if (await waitForEnd(pid, QUIT_MS)) continue
    sendSignal(pid, 'SIGKILL')
    isClear = (await waitForEnd(pid, KILL_MS)) && isClear
  }
  return isClear
}

/**
 * PostgreSQL accepts any process with the recorded id as its server: a process that reused the id, or a zombie that its parent
 * does not reap (Node as the first process of a container). At this point no process of the cluster is alive, so the record is
 * stale.
 */
function removePidFiles({ clusterDir, socketDir }: Leftovers): void {
  rmSync(join(clusterDir, 'postmaster.pid'), { force: true })
  for (const name of [`.s.PGSQL.${SOCKET_PORT}.lock`, `.s.PGSQL.${SOCKET_PORT}`])
    rmSync(join(socketDir, name), { force: true })
}
