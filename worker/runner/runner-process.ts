/** One runner process as its parent sees it: messages in batches, modules, resident memory, end. It takes no decisions. */
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { once } from 'node:events'
import { IsolatedProcess, toStagedPath } from '../isolation/index.ts'
import type { Isolation } from '../isolation/index.ts'
import { listComponentFiles } from '../transpile/index.ts'
import { FRAME, FrameReader, encodeFrame, encodeMessages } from './frames.ts'
import { parseFromRunner } from './from-runner.ts'
import { RUNNER_ENTRY } from './staged-code.ts'
import type { FromRunner, ModuleOrder, ToRunner } from './messages.ts'

/** What a runner wrote to its error output last, kept for the log. */
const MAX_ERROR_OUTPUT_BYTES = 4096
/** A runner that is told to leave has nothing to do any more. */
const CLOSE_DEADLINE_MS = 1_000
/** Heap of a runner's main thread; modules lie outside of it. */
const MAX_MAIN_HEAP_MIB = 128
/** Largest message of a runner: a result of 16 MiB beside stdout and stderr of 16 MiB each, some of it escaped. */
const MAX_FRAME_BYTES = 128 * 1024 * 1024
/** Nothing but the last words of the engine comes there. */
const MAX_ALL_ERROR_BYTES = 1024 * 1024
/**
 * Of frames that change nothing: a thread says a few about runs that were taken from it meanwhile. A runner that keeps on saying
 * them takes the worker's time from everybody else.
 */
const MAX_IDLE_BYTES = 64 * 1024 * 1024
/** What reading a message costs beside its bytes, in bytes. */
const IDLE_MESSAGE_BYTES = 256
/** Of them forgotten with each order: orders are what messages that come too late result from. */
const IDLE_BYTES_PER_ORDER = 64 * 1024
/** Bytes of a module that are sent at a time. */
const MODULE_PART_BYTES = 256 * 1024

const ENGINE_FLAGS = [
  // Threads of the runner; they inherit the permissions.
  '--allow-worker',
  '--expose-gc',
  // Short-lived messages are all that is allocated: a small nursery costs nothing and is paid per thread.
  '--max-semi-space-size=1',
]

export type RunnerLaunch = {
  isolation: Isolation
  /** Folder of the runner's code, as `stageRunnerCode` laid it out. */
  codeFolder: string
  /** Number of the runner within its pool, which decides its user. */
  index: number
}

/** Where the files of a module lie. */
export type ModuleSource = { modulePath: string; componentFolder: string | undefined }

export type RunnerProcessHandlers = {
  /** False: it changed nothing. May throw: then the runner is not to be trusted any more, and ends. */
  onMessage: (message: FromRunner) => boolean
  /** It said what no runner says, or takes no more modules; it is to be killed. */
  onFault: (cause: string) => void
  /** Called once, after the last message. */
  onExit: (cause: string) => void
}

export class RunnerProcess {
  readonly #process: IsolatedProcess
  readonly #onFault: (cause: string) => void
  #outbox: ToRunner[] = []
  #errorOutput = ''
  #errorBytes = 0
  #idleBytes = 0
  #reportedResidentBytes = 0
  #hasExited = false
  /** Ends when the last module that was ordered has been sent. */
  #modules: Promise<void> = Promise.resolve()
  readonly exited: Promise<void>

  constructor({ isolation, codeFolder, index }: RunnerLaunch, handlers: RunnerProcessHandlers) {
    this.#process = new IsolatedProcess(isolation, {
      codeFolder,
      entry: join(codeFolder, toStagedPath(RUNNER_ENTRY)),
      user: index,
      maxHeapMib: MAX_MAIN_HEAP_MIB,
      flags: ENGINE_FLAGS,
    })
    this.#onFault = handlers.onFault
    const { child } = this.#process
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#errorOutput = (this.#errorOutput + text).slice(-MAX_ERROR_OUTPUT_BYTES)
      this.#errorBytes += text.length
      if (this.#errorBytes > MAX_ALL_ERROR_BYTES) handlers.onFault('it does not stop writing to its error output')
    })
    // It may end at any time; what was on its way to it is of no use then.
    child.stdin.on('error', () => undefined)
    this.#read(handlers)
    this.exited = new Promise((resolve) => {
      const end = (cause: string) => {
        if (this.#hasExited) return
        this.#hasExited = true
        handlers.onExit(cause)
        resolve()
      }
      // After `close` all that it said has been read.
      child.once('close', (code, signal) => end(this.#describeEnd(code, signal)))
      child.once('error', (error) => {
        if (child.pid === undefined) end(error.message)
      })
    })
  }

  /** Of Node itself; undefined until it is known. */
  get pid(): number | undefined {
    return this.#process.pid
  }

  /** Sends in one batch what is sent within a turn of the event loop. To a process that is gone it sends nothing. */
  send(message: ToRunner): void {
    this.#outbox.push(message)
    this.#idleBytes = Math.max(0, this.#idleBytes - IDLE_BYTES_PER_ORDER)
    if (this.#outbox.length > 1) return
    setImmediate(() => this.#flush())
  }

  /** Sends the files of a module: the runner itself can read none. */
  loadModule(order: Omit<ModuleOrder, 'files'>, source: ModuleSource): void {
    this.#modules = this.#modules
      .then(() => this.#sendModule(order, source))
      .catch((error: unknown) => {
        if (!this.#hasExited) this.#onFault(`a module could not be sent to it: ${(error as Error).message}`)
      })
  }

  /** Resident memory now; 0 when the process is gone. */
  residentBytes(): number {
    return this.#process.residentBytes() ?? this.#reportedResidentBytes
  }

  kill(): void {
    this.#process.kill()
  }

  /** Asks the process to leave and ends it when it has not after a second. */
  async close(): Promise<void> {
    this.#process.child.stdin.end()
    const timer = setTimeout(() => this.kill(), CLOSE_DEADLINE_MS)
    await this.exited
    clearTimeout(timer)
  }

  #read({ onMessage, onFault }: RunnerProcessHandlers): void {
    let isTrusted = true
    const reader = new FrameReader(MAX_FRAME_BYTES, (kind, payload) => {
      if (kind !== FRAME.messages) throw new Error(`a frame of the unknown kind ${kind}`)
      const messages = parseFromRunner(payload)
      let idle = messages.length === 0 ? 1 : 0
      for (const message of messages) {
        if (!(message.type === 'resident' ? this.#noteResident(message.residentBytes) : onMessage(message))) idle++
      }
      if (idle === 0) return
      this.#idleBytes += payload.length + idle * IDLE_MESSAGE_BYTES
      if (this.#idleBytes > MAX_IDLE_BYTES) throw new Error('too many that change nothing')
    })
    this.#process.child.stdout.on('data', (chunk: Buffer) => {
      if (!isTrusted) return
      try {
        reader.push(chunk)
      } catch (error) {
        isTrusted = false
        onFault(`it sent a wrong message: ${(error as Error).message}`)
      }
    })
  }

  #noteResident(residentBytes: number): boolean {
    this.#reportedResidentBytes = residentBytes
    // Where the system tells, a runner has no reason to.
    return process.platform !== 'linux'
  }

  #flush(): void {
    const batch = this.#outbox
    this.#outbox = []
    if (batch.length > 0 && this.#process.child.stdin.writable) this.#process.child.stdin.write(encodeMessages(batch))
  }

  async #sendModule(order: Omit<ModuleOrder, 'files'>, { modulePath, componentFolder }: ModuleSource): Promise<void> {
    const transpiled = componentFolder === undefined ? [] : await listComponentFiles(componentFolder)
    const paths = [modulePath, ...transpiled]
    const sizes = await Promise.all(paths.map((path) => stat(path)))
    const files = paths.map((path, at) => ({ name: basename(path), bytes: sizes[at]?.size ?? 0 }))
    this.send({ type: 'load_module', module: { ...order, files } })
    this.#flush()
    const { stdin } = this.#process.child
    for (const path of paths) {
      for await (const part of createReadStream(path, { highWaterMark: MODULE_PART_BYTES })) {
        if (!stdin.writable) return
        if (!stdin.write(encodeFrame(FRAME.module, part as Buffer))) {
          await Promise.race([once(stdin, 'drain'), this.exited])
        }
      }
    }
  }

  #describeEnd(code: number | null, signal: NodeJS.Signals | null): string {
    const end = signal === null ? `exit code ${code}` : signal
    const output = this.#errorOutput.trim()
    return output === '' ? end : `${end}: ${output}`
  }
}
