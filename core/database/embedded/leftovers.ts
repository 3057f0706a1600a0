/**
 * Ends what a Skein that was killed left behind. The server of a killed Skein lives on; it is stopped and started anew
 * rather than adopted, because its log pipe is broken and its settings may be those of an older version. Call only
 * while holding the folder's lock.
 */
import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { findServerProcesses, isAlive, isServerOf, sendSignal, waitForEnd } from '../../processes.ts'
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

/** With `isThorough` every process is looked at, also when no `postmaster.pid` speaks of one. */
export async function endLeftovers(leftovers: Leftovers, isThorough: boolean): Promise<void> {
  const { clusterDir, log } = leftovers
  const pid = readPostmasterPid(clusterDir)
  if (pid === undefined && !isThorough) return
  if (pid !== undefined && isAlive(pid)) {
    if (await isServerOf(clusterDir, pid)) {
      log(`a PostgreSQL server (pid ${pid}) outlived an earlier Skein; stopping it`)
      await endServer(pid)
    } else {
      log(`postmaster.pid names process ${pid}, which is no server of this folder`)
    }
  }
  if (await endOrphans(leftovers)) removePidFiles(leftovers)
}

/** The process that `postmaster.pid` names (its first line); undefined without one. */
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
 * Backends whose postmaster was killed go by themselves once they look up from their work; a long statement can keep
 * one for minutes, and the new server cannot start before. What they had not committed is lost either way. False when
 * one cannot be ended (it waits for a disk that does not answer).
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
 * PostgreSQL takes any process of the recorded id for its server: one that got the id since, or a zombie whose parent
 * does not look (Node as the first process of a container). By now no process of the cluster lives, so the record is
 * of nobody.
 */
function removePidFiles({ clusterDir, socketDir }: Leftovers): void {
  rmSync(join(clusterDir, 'postmaster.pid'), { force: true })
  for (const name of [`.s.PGSQL.${SOCKET_PORT}.lock`, `.s.PGSQL.${SOCKET_PORT}`])
    rmSync(join(socketDir, name), { force: true })
}
