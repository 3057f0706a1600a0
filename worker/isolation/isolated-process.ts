/**
 * Starts a process for input of tenants: it can read only its own code, has no environment, cannot use `eval`, has no
 * descriptors except its standard streams, and runs at the isolation level of this machine.
 */
import { spawn } from 'node:child_process'
import type { ChildProcessWithoutNullStreams } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { INFO_FD, commandFor } from './command.ts'
import type { Isolation } from './levels.ts'
import { residentBytesOf } from './resident.ts'

export type IsolatedLaunch = {
  /** The only readable folder, with everything below it. */
  codeFolder: string
  /** The program, in `codeFolder`. */
  entry: string
  /** Index of its user. */
  user: number
  /** Heap size of its main thread. */
  maxHeapMib: number
  /** Engine flags besides those for isolation. */
  flags?: readonly string[]
}

/** Limit for the information of bubblewrap, which has some hundred bytes. */
const MAX_INFO_CHARACTERS = 4_096

export class IsolatedProcess {
  readonly child: ChildProcessWithoutNullStreams
  readonly #isInNamespace: boolean
  #pid: number | undefined
  #isKilled = false

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
    this.#isInNamespace = isolation.level === 'namespace'
    const launch = commandFor(isolation, { codeFolder, user, node, reportsPid: this.#isInNamespace })
    const standard = ['pipe', 'pipe', 'pipe'] as const
    this.child = spawn(launch.command, launch.args, {
      ...launch.options,
      stdio: this.#isInNamespace ? [...standard, 'pipe'] : [...standard],
    }) as ChildProcessWithoutNullStreams
    raiseOomScore(this.child.pid)
    if (this.#isInNamespace) this.#readPid(this.child.stdio[INFO_FD] as Readable)
    else this.#pid = this.child.pid
  }

  /** Process id of Node itself; undefined until it is known. */
  get pid(): number | undefined {
    return this.#pid
  }

  /** Resident memory: 0 before it started and after it exited, undefined if the system does not report it. */
  residentBytes(): number | undefined {
    if (process.platform !== 'linux') return undefined
    return this.#pid === undefined ? 0 : residentBytesOf(this.#pid)
  }

  /**
   * Kills at once. In a namespace Node is killed, not bubblewrap, which reaps it and exits too. Before bubblewrap has said which process Node is
   * to be, that process waits to be released by bubblewrap, and would wait for ever if bubblewrap were killed: it is killed as soon as it is known.
   */
  kill(): void {
    const hasEnded = this.child.exitCode !== null || this.child.signalCode !== null
    if (hasEnded) return
    this.#isKilled = true
    if (this.#pid !== undefined) killIfThere(this.#pid)
    else if (!this.#isInNamespace) this.child.kill('SIGKILL')
  }

  #readPid(info: Readable): void {
    let text = ''
    info.setEncoding('utf8').on('data', (part: string) => {
      text = (text + part).slice(0, MAX_INFO_CHARACTERS)
      const [, pid] = /"child-pid": (\d+)/.exec(text) ?? []
      if (pid === undefined || this.#pid !== undefined) return
      this.#pid = Number(pid)
      if (this.#isKilled) killIfThere(this.#pid)
      else raiseOomScore(this.#pid)
    })
  }
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // The process has ended; its exit event follows.
  }
}

/** If the machine runs out of memory, the kernel must kill this process first. */
function raiseOomScore(pid: number | undefined): void {
  if (pid === undefined || process.platform !== 'linux') return
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, '1000')
  } catch {
    // A hint: where it is not allowed, the supervisor's own limits still hold.
  }
}
