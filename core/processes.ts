/** Inspects other processes of this machine: whether they are alive, and which program they run. */
import { execFile } from 'node:child_process'
import { readFileSync, readdirSync } from 'node:fs'
import { basename } from 'node:path'
import { promisify } from 'node:util'
import { sleep } from './time.ts'

const POLL_MS = 5
const PS_DEADLINE_MS = 5000

export function isAlive(pid: number): boolean {
  if (!Number.isSafeInteger(pid) || pid <= 0) return false
  try {
    process.kill(pid, 0)
    return !isZombie(pid)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** Waits until the process has ended; false when it is still alive at the deadline. */
export async function waitForEnd(pid: number, deadlineMs: number): Promise<boolean> {
  const until = performance.now() + deadlineMs
  while (isAlive(pid)) {
    if (performance.now() >= until) return false
    await sleep(POLL_MS)
  }
  return true
}

/** Sends a signal; ignores a process that has already ended. */
export function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/**
 * True when the process is a PostgreSQL server of this cluster, according to its command line, which every user may read (links
 * such as /proc/PID/exe are not readable for root in containers without CAP_SYS_PTRACE).
 */
export async function isServerOf(clusterDir: string, pid: number): Promise<boolean> {
  const command = await commandOf(pid)
  return command !== undefined && isServerCommand(command, clusterDir)
}

/** Processes of a dead or unrecorded server of the cluster: postmasters by folder, their children by title. */
export async function findServerProcesses(clusterDir: string, clusterName: string): Promise<number[]> {
  const found: number[] = []
  for (const { pid, command } of await listCommands()) {
    if (isServerCommand(command, clusterDir) || command.startsWith(`postgres: ${clusterName}: `)) found.push(pid)
  }
  return found
}

/** Arguments are separated by NUL on Linux and by a space in the output of ps. */
function isServerCommand(command: string, clusterDir: string): boolean {
  const program = command.split(/[\0 ]-D[\0 ]/, 1)[0] ?? ''
  if (basename(program) !== 'postgres') return false
  const rest = command.slice(program.length + 4)
  return rest === clusterDir || rest.startsWith(`${clusterDir}\0`) || rest.startsWith(`${clusterDir} `)
}

async function commandOf(pid: number): Promise<string | undefined> {
  if (process.platform === 'linux') return readProc(pid, 'cmdline')
  return (await ps(['-o', 'command=', '-p', String(pid)]))?.trim()
}

async function listCommands(): Promise<{ pid: number; command: string }[]> {
  if (process.platform === 'linux') {
    const pids = readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
    return pids.map((pid) => ({ pid, command: readProc(pid, 'cmdline') ?? '' }))
  }
  const lines = ((await ps(['-axo', 'pid=,command='])) ?? '').split('\n')
  return lines.map((line) => {
    const [, pid, command] = /^\s*(\d+)\s(.*)$/.exec(line) ?? []
    return { pid: Number(pid), command: command ?? '' }
  })
}

/** A zombie has ended and waits for its parent to reap it; signals have no effect on it. */
function isZombie(pid: number): boolean {
  if (process.platform !== 'linux') return false
  const stat = readProc(pid, 'stat')
  // The name in parentheses may contain anything; the state follows the last one.
  return stat?.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3) === 'Z'
}

function readProc(pid: number, name: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'utf8')
  } catch {
    return undefined
  }
}

async function ps(args: string[]): Promise<string | undefined> {
  try {
    return (await promisify(execFile)('ps', args, { timeout: PS_DEADLINE_MS })).stdout
  } catch {
    return undefined
  }
}
