/** One runner process as seen by its parent: batched messages, modules, resident memory, exit. It makes no decisions. */
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { once } from 'node:events'
import { IsolatedProcess, toJavaScriptPath } from '../isolation/index.ts'
import type { Isolation } from '../isolation/index.ts'
import { listComponentFiles } from '../transpile/index.ts'
import { FRAME, FrameReader, encodeFrame, encodeMessages } from './frames.ts'
import { parseFromRunner } from './from-runner.ts'
import { RUNNER_ENTRY } from './staged-code.ts'
import type { FromRunner, ModuleOrder, ToRunner } from './messages.ts'

/** The end of a runner's error output, kept for the log. */
const MAX_ERROR_OUTPUT_BYTES = 4096
/** A runner that is asked to exit has no work left. */
const CLOSE_DEADLINE_MS = 1_000
/** Heap of a runner's main thread; modules are outside of it. */
const MAX_MAIN_HEAP_MIB = 128
/** Largest message of a runner: a result of 16 MiB with stdout and stderr of 16 MiB each, partly escaped. */
const MAX_FRAME_BYTES = 128 * 1024 * 1024
/** Only the last messages of the engine are written there. */
const MAX_ALL_ERROR_BYTES = 1024 * 1024
/**
 * Limit of messages without effect: a thread sends a few about recalled runs. A runner that keeps sending them takes CPU
 * time of the worker from others.
 */
const MAX_IDLE_BYTES = 64 * 1024 * 1024
/** The cost of reading a message besides its bytes, in bytes. */
const IDLE_MESSAGE_BYTES = 256
/** Each order subtracts this from the bytes of such messages, because late messages result from orders. */
const IDLE_BYTES_PER_ORDER = 64 * 1024
/** Bytes of a module per message. */
const MODULE_PART_BYTES = 256 * 1024

const ENGINE_FLAGS = [
  // Threads of the runner; they inherit the permissions.
  '--allow-worker',
  '--expose-gc',
  // Only short-lived messages are allocated: a small nursery is sufficient and is allocated per thread.
  '--max-semi-space-size=1',
]

export type RunnerLaunch = {
  isolation: Isolation
  /** Folder of the runner's code from `stageRunnerCode`. */
  codeFolder: string
  /** Index of the runner within its pool, which determines its user. */
  index: number
}

/** The files of a module. */
export type ModuleSource = { modulePath: string; componentFolder: string | undefined }

export type RunnerProcessHandlers = {
  /** False: it had no effect. Can throw: then the runner is untrusted and is killed. */
  onMessage: (message: FromRunner) => boolean
  /** It sent an invalid message, or accepts no modules; it must be killed. */
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
  /** Resolves when the last ordered module was sent. */
  #modules: Promise<void> = Promise.resolve()
  readonly exited: Promise<void>

  constructor({ isolation, codeFolder, index }: RunnerLaunch, handlers: RunnerProcessHandlers) {
    this.#process = new IsolatedProcess(isolation, {
      codeFolder,
      entry: join(codeFolder, toJavaScriptPath(RUNNER_ENTRY)),
      user: index,
      maxHeapMib: MAX_MAIN_HEAP_MIB,
      flags: ENGINE_FLAGS,
    })
    this.#onFault = handlers.onFault
    const { child } = this.#process
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#errorOutput = (this.#errorOutput + text).slice(-MAX_ERROR_OUTPUT_BYTES)
      this.#errorBytes += text.length
      if (this.#errorBytes > MAX_ALL_ERROR_BYTES) handlers.onFault('it wrote too much to its error output')
    })
    // The process can exit at any time; unsent messages are lost then.
    child.stdin.on('error', () => undefined)
    this.#read(handlers)
    this.exited = new Promise((resolve) => {
      const end = (cause: string) => {
        if (this.#hasExited) return
        this.#hasExited = true
        handlers.onExit(cause)
        resolve()
      }
      // After `close` all of its output was read.
      child.once('close', (code, signal) => end(this.#describeEnd(code, signal)))
      child.once('error', (error) => {
        if (child.pid === undefined) end(error.message)
      })
    })
  }

  /** Process id of Node itself; undefined until it is known. */
  get pid(): number | undefined {
    return this.#process.pid
  }

  /** Sends the messages of one turn of the event loop in one batch; no effect after the process has exited. */
  send(message: ToRunner): void {
    this.#outbox.push(message)
    this.#idleBytes = Math.max(0, this.#idleBytes - IDLE_BYTES_PER_ORDER)
    if (this.#outbox.length > 1) return
    setImmediate(() => this.#flush())
  }

  /** Sends the files of a module, because the runner cannot read them. */
  loadModule(order: Omit<ModuleOrder, 'files'>, source: ModuleSource): void {
    this.#modules = this.#modules
      .then(() => this.#sendModule(order, source))
      .catch((error: unknown) => {
        if (!this.#hasExited) this.#onFault(`failed to send a module to it: ${(error as Error).message}`)
      })
  }

  /** Resident memory; 0 after the process has exited. */
  residentBytes(): number {
    return this.#process.residentBytes() ?? this.#reportedResidentBytes
  }

  kill(): void {
    this.#process.kill()
  }

  /** Asks the process to exit, and kills it after a second. */
  async close(): Promise<void> {
    this.#process.child.stdin.end()
    const timer = setTimeout(() => this.kill(), CLOSE_DEADLINE_MS)
    await this.exited
    clearTimeout(timer)
  }

  #read({ onMessage, onFault }: RunnerProcessHandlers): void {
    let isTrusted = true
    const reader = new FrameReader(MAX_FRAME_BYTES, (kind, payload) => {
      if (kind !== FRAME.messages) throw new Error(`a frame has the unknown kind ${kind}`)
      const messages = parseFromRunner(payload)
      let idle = messages.length === 0 ? 1 : 0
      for (const message of messages) {
        if (!(message.type === 'resident' ? this.#noteResident(message.residentBytes) : onMessage(message))) idle++
      }
      if (idle === 0) return
      this.#idleBytes += payload.length + idle * IDLE_MESSAGE_BYTES
      if (this.#idleBytes > MAX_IDLE_BYTES) throw new Error('too many messages without effect')
    })
    this.#process.child.stdout.on('data', (chunk: Buffer) => {
      if (!isTrusted) return
      try {
        reader.push(chunk)
      } catch (error) {
        isTrusted = false
        onFault(`it sent an invalid message: ${(error as Error).message}`)
      }
    })
  }

  #noteResident(residentBytes: number): boolean {
    this.#reportedResidentBytes = residentBytes
    // If the system reports the memory, a runner has no reason to report it.
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
