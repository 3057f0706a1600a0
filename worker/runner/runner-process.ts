/** One runner process as its parent sees it: messages in batches, resident memory, end. It takes no decisions. */
import type { ChildProcess } from 'node:child_process'
import { residentBytesOf } from '../isolation/index.ts'
import { launchRunner } from './launch.ts'
import type { LaunchOptions } from './launch.ts'
import type { FromRunner, ToRunner } from './messages.ts'

/** What a runner wrote to its error output last, kept for the log. */
const MAX_ERROR_OUTPUT_BYTES = 4096
/** A runner that is told to leave has nothing to do any more. */
const CLOSE_DEADLINE_MS = 1_000

export type RunnerProcessHandlers = {
  onMessage: (message: FromRunner) => void
  /** Called once, after the last message. */
  onExit: (cause: string) => void
}

export class RunnerProcess {
  readonly #child: ChildProcess
  #outbox: ToRunner[] = []
  #errorOutput = ''
  #reportedResidentBytes = 0
  #hasExited = false
  readonly exited: Promise<void>

  constructor(options: LaunchOptions, handlers: RunnerProcessHandlers) {
    const child = launchRunner(options)
    this.#child = child
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#errorOutput = (this.#errorOutput + text).slice(-MAX_ERROR_OUTPUT_BYTES)
    })
    child.on('message', (batch: FromRunner[]) => {
      for (const message of batch) {
        if (message.type === 'resident') this.#reportedResidentBytes = message.residentBytes
        else handlers.onMessage(message)
      }
    })
    this.exited = new Promise((resolve) => {
      const end = (cause: string) => {
        if (this.#hasExited) return
        this.#hasExited = true
        handlers.onExit(cause)
        resolve()
      }
      // Messages that were under way when it ended still arrive; after the end of the channel there are none.
      child.on('exit', (code, signal) => {
        const cause = () => end(this.#describeEnd(code, signal))
        if (child.connected) child.once('disconnect', cause)
        else setImmediate(cause)
      })
      child.on('error', (error) => {
        if (child.pid === undefined) end(error.message)
      })
    })
  }

  get pid(): number | undefined {
    return this.#child.pid
  }

  /** Sends in one batch what is sent within a turn of the event loop. To a process that is gone it sends nothing. */
  send(message: ToRunner): void {
    this.#outbox.push(message)
    if (this.#outbox.length > 1) return
    setImmediate(() => {
      const batch = this.#outbox
      this.#outbox = []
      if (this.#child.connected) this.#child.send(batch, () => undefined)
    })
  }

  /** Resident memory now; 0 when the process is gone. */
  residentBytes(): number {
    return residentBytesOf(this.pid) ?? this.#reportedResidentBytes
  }

  kill(): void {
    this.#child.kill('SIGKILL')
  }

  /** Asks the process to leave and ends it when it has not after a second. */
  async close(): Promise<void> {
    if (this.#child.connected) this.#child.disconnect()
    const timer = setTimeout(() => this.kill(), CLOSE_DEADLINE_MS)
    await this.exited
    clearTimeout(timer)
  }

  #describeEnd(code: number | null, signal: NodeJS.Signals | null): string {
    const end = signal === null ? `exit code ${code}` : signal
    const output = this.#errorOutput.trim()
    return output === '' ? end : `${end}: ${output}`
  }
}
