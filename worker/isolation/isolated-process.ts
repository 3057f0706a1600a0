/**
 * Starts a process that handles what tenants sent: it may read its own code and nothing else, has no environment, makes
 * no code from text, holds no descriptors but its three standard streams, and stands behind the boundary of the system
 * that this machine offers.
 */
import { spawn } from 'node:child_process'
import type { ChildProcessWithoutNullStreams } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { INFO_FD, commandFor } from './command.ts'
import type { Isolation } from './levels.ts'
import { residentBytesOf } from './resident.ts'

export type IsolatedLaunch = {
  /** The only folder that the process may read, with everything below. */
  codeFolder: string
  /** The program, below `codeFolder`. */
  entry: string
  /** Number of its user among ours. */
  user: number
  /** Heap of its main thread. */
  maxHeapMib: number
  /** Flags of the engine beyond those that isolate. */
  flags?: readonly string[]
}

/** Bubblewrap says some hundred bytes; more than this is not read. */
const MAX_INFO_CHARACTERS = 4_096

export class IsolatedProcess {
  readonly child: ChildProcessWithoutNullStreams
  #pid: number | undefined

  constructor(isolation: Isolation, { codeFolder, entry, user, maxHeapMib, flags = [] }: IsolatedLaunch) {
    const node = [
      '--permission',
      `--allow-fs-read=${codeFolder}/*`,
      '--disallow-code-generation-from-strings',
      // A signal must not open an inspector port.
      '--disable-sigusr1',
      '--no-warnings',
      `--max-old-space-size=${maxHeapMib}`,
      ...flags,
      entry,
    ]
    const isInNamespace = isolation.level === 'namespace'
    const launch = commandFor(isolation, { codeFolder, user, node, reportsPid: isInNamespace })
    const standard = ['pipe', 'pipe', 'pipe'] as const
    this.child = spawn(launch.command, launch.args, {
      ...launch.options,
      stdio: isInNamespace ? [...standard, 'pipe'] : [...standard],
    }) as ChildProcessWithoutNullStreams
    preferToLose(this.child.pid)
    if (isInNamespace) this.#readPid(this.child.stdio[INFO_FD] as Readable)
    else this.#pid = this.child.pid
  }

  /** Of Node itself; undefined until it is known. */
  get pid(): number | undefined {
    return this.#pid
  }

  /** Resident memory now: 0 before it started and when it is gone, undefined where the system does not tell. */
  residentBytes(): number | undefined {
    if (process.platform !== 'linux') return undefined
    return this.#pid === undefined ? 0 : residentBytesOf(this.#pid)
  }

  /** At once. In a namespace Node is killed, not bubblewrap around it, which then reaps it and ends too. */
  kill(): void {
    const hasEnded = this.child.exitCode !== null || this.child.signalCode !== null
    if (hasEnded) return
    if (this.#pid === undefined || this.#pid === this.child.pid) this.child.kill('SIGKILL')
    else killIfThere(this.#pid)
  }

  #readPid(info: Readable): void {
    let text = ''
    info.setEncoding('utf8').on('data', (part: string) => {
      text = (text + part).slice(0, MAX_INFO_CHARACTERS)
      const [, pid] = /"child-pid": (\d+)/.exec(text) ?? []
      if (pid === undefined || this.#pid !== undefined) return
      this.#pid = Number(pid)
      preferToLose(this.#pid)
    })
  }
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended by itself, which is heard of in a moment.
  }
}

/** When the machine itself runs out of memory, the kernel shall end this process and nothing else. */
function preferToLose(pid: number | undefined): void {
  if (pid === undefined || process.platform !== 'linux') return
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, '1000')
  } catch {
    // A hint: where it is not allowed, the supervisor's own limits still hold.
  }
}
