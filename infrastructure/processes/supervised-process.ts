/** Starts one process of the supervisor, and restarts it when it exits. */
import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import type { Environment } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { STARTED } from '#core/program/index.ts'
import type { ParentMessage } from '#core/program/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { Link } from './link.ts'
import type { LinkHandlers } from './link.ts'
import { PROCESS_METRICS } from './metrics.ts'
import { SERVING } from './link-messages.ts'

/** The pause before a restart; it doubles while the process exits soon after its start. */
const FIRST_PAUSE_MS = 50
const MAX_PAUSE_MS = 10_000
/** A process that served for this time resets the pause. */
const STABLE_MS = 10_000
/** A process that does not serve after this time is replaced. */
const START_DEADLINE_MS = 120_000
/** A process stops its parts within 20 seconds; after this time it is killed, so that the supervisor stays within the same deadline. */
const STOP_DEADLINE_MS = 18_000
/** The end of stderr of a process that cannot start becomes the error of the program. */
const MAX_ERROR_OUTPUT_CHARS = 8000

export type SupervisedOptions = {
  name: string
  /** Its program; it gets the name as its argument. */
  entry: URL
  environment: Environment
  /** Settings that differ from the environment. */
  settings: Readonly<Record<string, string>>
  /** This program shows the progress of its start: the log of the process waits for `programStarted`. */
  showsProgress: boolean
  logger: Logger
  handlers: Omit<LinkHandlers, 'onNotification'> & { onNotification: (what: string, body: unknown) => void }
}

export class SupervisedProcess {
  readonly name: string
  readonly #options: SupervisedOptions
  readonly #stopping = new AbortController()
  readonly #started = Promise.withResolvers<unknown>()
  readonly #running: Promise<void>
  #child: ChildProcess | undefined
  #link: Link | undefined
  #isServing = false
  /** The process has opened its end of the link and can receive hints. */
  #isListening = false
  #isProgramStarting: boolean

  constructor(options: SupervisedOptions) {
    this.#isProgramStarting = options.showsProgress
    this.name = options.name
    this.#options = options
    // It is awaited only when the program has started its other parts.
    this.#started.promise.catch(() => undefined)
    this.#running = this.#supervise()
  }

  /** Resolves to its facts when it serves for the first time. Rejects with what it printed last when it cannot start. */
  get started(): Promise<unknown> {
    return this.#started.promise
  }

  get isServing(): boolean {
    return this.#isServing
  }

  /** Undefined while it is being replaced. */
  get link(): Link | undefined {
    return this.#isListening ? this.#link : undefined
  }

  /** The start of this program is over: the process writes its log. */
  programStarted(): void {
    if (!this.#isProgramStarting) return
    this.#isProgramStarting = false
    this.#child?.send(STARTED, () => undefined)
  }

  /** Stops it within its deadline, and kills it after it. */
  async stop(): Promise<void> {
    this.#stopping.abort()
    this.#child?.kill('SIGTERM')
    const killer = setTimeout(() => this.#child?.kill('SIGKILL'), STOP_DEADLINE_MS)
    await this.#running
    clearTimeout(killer)
  }

  async #supervise(): Promise<void> {
    const { logger } = this.#options
    let pauseMs = FIRST_PAUSE_MS
    let isFirst = true
    while (!this.#stopping.signal.aborted) {
      const { reason, errorOutput, servedMs } = await this.#run()
      if (this.#stopping.signal.aborted) return
      if (isFirst && servedMs === undefined) {
        this.#started.reject(
          new ServiceError('unavailable', errorOutput === '' ? `a process ended: ${reason}` : errorOutput),
        )
        return
      }
      isFirst = false
      PROCESS_METRICS.restarts.add({})
      if ((servedMs ?? 0) > STABLE_MS) pauseMs = FIRST_PAUSE_MS
      const facts = { of: this.name, reason, pauseMs, ...(errorOutput === '' ? {} : { stderr: errorOutput }) }
      logger.error(facts, `process ${this.name} ended; restarting it`)
      await sleep(pauseMs, this.#stopping.signal).catch(() => undefined)
      pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)
    }
  }

  /** Runs one process until it ends. */
  async #run(): Promise<{ reason: string; errorOutput: string; servedMs: number | undefined }> {
    const { entry, name, environment, settings, handlers } = this.#options
    // A session of its own: Ctrl-C reaches only the supervisor, which stops its parts in order.
    const child = fork(entry, [name], {
      env: environment as NodeJS.ProcessEnv,
      detached: true,
      serialization: 'advanced',
      stdio: ['ignore', 'inherit', 'pipe', 'ipc'],
    })
    let servingSinceMs: number | undefined
    let errorOutput = ''
    child.stderr?.on('data', (chunk: Buffer) => {
      // Its output before it serves is printed once: here, or in the error of the program.
      if (servingSinceMs === undefined) errorOutput = (errorOutput + chunk.toString()).slice(-MAX_ERROR_OUTPUT_CHARS)
      else process.stderr.write(chunk)
    })
    const late = setTimeout(() => child.kill('SIGKILL'), START_DEADLINE_MS)
    const link = new Link(
      {
        send: (message, written) => void child.send(message as object, written),
        listen: (handler) => void child.on('message', handler),
        get isOpen() {
          return child.connected
        },
      },
      {
        onHint: handlers.onHint,
        onNotification: (what, body) => {
          if (what === SERVING) {
            clearTimeout(late)
            servingSinceMs = monotonicMs()
            this.#isServing = true
            if (errorOutput !== '') process.stderr.write(errorOutput)
            errorOutput = ''
            this.#started.resolve(body)
          } else handlers.onNotification(what, body)
        },
        respond: (what, body) => {
          this.#isListening = true
          return handlers.respond(what, body)
        },
      },
    )
    this.#child = child
    this.#link = link
    const first: ParentMessage = { settings, isStarting: this.#isProgramStarting }
    child.send(first, () => undefined)
    const reason = await new Promise<string>((resolve) => {
      child.on('error', (error) => {
        // Without a process there is no exit. Other errors, such as a signal that could not be sent, end nothing.
        if (child.pid === undefined) resolve(error.message)
      })
      // `close` follows the end of the output, which contains the last error.
      child.once('close', (code, signal) => resolve(signal === null ? `exit code ${code}` : signal))
      child.once('exit', () => {
        this.#isServing = false
        this.#isListening = false
        link.close()
      })
    })
    clearTimeout(late)
    this.#child = undefined
    return {
      reason,
      errorOutput: errorOutput.trim(),
      servedMs: servingSinceMs === undefined ? undefined : monotonicMs() - servingSinceMs,
    }
  }
}
