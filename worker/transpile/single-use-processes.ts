/**
 * The processes that transpile and check components. Each gets one input and ends, so no state of one domain reaches
 * another. Loading the code takes most of the time of a small component; therefore one spare of each program has loaded
 * its code and waits for its input. Spares exist from the first component until a quiet time has passed.
 */
import { join } from 'node:path'
import { IsolatedProcess, toJavaScriptPath } from '../isolation/index.ts'
import type { Isolation } from '../isolation/index.ts'

export type SingleUseProcessesOptions = {
  isolation: Isolation
  /** The folder from `stageTranspilerCode`. */
  codeFolder: string
  /** The programs, of each of which there is at most one spare. */
  entries: readonly string[]
  /** False: there are no spares. */
  hasSpares?: boolean
  /** Default: SPARE_DELAY_MS. */
  spareDelayMs?: number
  /** Default: SPARE_IDLE_MS. */
  spareIdleMs?: number
}

/** First user index among isolated processes, far from those of the runners. */
const FIRST_USER = 500
const MAX_HEAP_MIB = 512
const MAX_ERROR_OUTPUT_CHARACTERS = 1_000
/** Spares are replaced after this, so that their start does not take the processors from the run that waits. */
const SPARE_DELAY_MS = 500
/** Spares without use end after this. Together they take 140 MB. */
const SPARE_IDLE_MS = 300_000

export class SingleUseProcess {
  readonly isolated: IsolatedProcess
  /** It waited for its input, and can have been killed meanwhile. */
  readonly isSpare: boolean
  /** Resolves when the process has ended, with an error if it could not be started. */
  readonly ended: Promise<Error | undefined>
  #errorOutput = ''

  constructor(isolated: IsolatedProcess, isSpare: boolean) {
    this.isolated = isolated
    this.isSpare = isSpare
    const { child } = isolated
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#errorOutput = (this.#errorOutput + text).slice(-MAX_ERROR_OUTPUT_CHARACTERS)
    })
    // A process that ends before it has read everything breaks the pipe; its output decides.
    child.stdin.on('error', () => undefined)
    this.ended = new Promise((resolve) => child.once('close', () => resolve(undefined)).once('error', resolve))
  }

  /** The end of what it wrote to its error output. */
  get errorOutput(): string {
    return this.#errorOutput.trim()
  }

  get hasEnded(): boolean {
    const { exitCode, signalCode } = this.isolated.child
    return exitCode !== null || signalCode !== null
  }
}

export class SingleUseProcesses {
  readonly #options: SingleUseProcessesOptions
  readonly #spares = new Map<string, SingleUseProcess>()
  /** User indices of the processes; two of them never have the same user. */
  readonly #users = new Set<number>()
  #inUse = 0
  #timer: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(options: SingleUseProcessesOptions) {
    this.#options = options
  }

  /** Process ids of the spares. */
  get sparePids(): number[] {
    return [...this.#spares.values()].flatMap(({ isolated }) => isolated.pid ?? [])
  }

  /** Starts the missing spares. */
  warm(): void {
    if (this.#isClosed || this.#options.hasSpares === false) return
    for (const entry of this.#options.entries) {
      if (!this.#spares.has(entry)) this.#startSpare(entry)
    }
    if (this.#inUse === 0) this.#endSparesLater()
  }

  /** The spare, if there is one. The caller gives it one input and waits for its end. */
  take(entry: string): SingleUseProcess {
    clearTimeout(this.#timer)
    const spare = this.#spares.get(entry)
    this.#spares.delete(entry)
    const taken = spare === undefined || spare.hasEnded ? this.#start(entry, false) : spare
    this.#inUse++
    void taken.ended.then(() => {
      this.#inUse--
      if (this.#inUse === 0 && !this.#isClosed) this.#warmLater()
    })
    return taken
  }

  /** Ends the spares. Processes in use are ended by their callers. */
  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    await this.#endSpares()
  }

  #warmLater(): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.warm(), this.#options.spareDelayMs ?? SPARE_DELAY_MS)
  }

  #endSparesLater(): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => void this.#endSpares(), this.#options.spareIdleMs ?? SPARE_IDLE_MS)
  }

  async #endSpares(): Promise<void> {
    const spares = [...this.#spares.values()]
    this.#spares.clear()
    for (const { isolated } of spares) isolated.kill()
    await Promise.all(spares.map(({ ended }) => ended))
  }

  #startSpare(entry: string): void {
    let spare: SingleUseProcess
    try {
      spare = this.#start(entry, true)
    } catch {
      // The next component starts a process itself, and its run gets the error.
      return
    }
    this.#spares.set(entry, spare)
    void spare.ended.then(() => {
      if (this.#spares.get(entry) === spare) this.#spares.delete(entry)
    })
  }

  #start(entry: string, isSpare: boolean): SingleUseProcess {
    const { isolation, codeFolder } = this.#options
    let user = FIRST_USER
    while (this.#users.has(user)) user++
    const isolated = new IsolatedProcess(isolation, {
      codeFolder,
      entry: join(codeFolder, toJavaScriptPath(entry)),
      user,
      maxHeapMib: MAX_HEAP_MIB,
    })
    const started = new SingleUseProcess(isolated, isSpare)
    this.#users.add(user)
    void started.ended.then(() => this.#users.delete(user))
    return started
  }
}
