/**
 * What the product does, counted from outside: statements at the driver, frames to the worker and to its runners, promises and timers of
 * this process. `write-ahead-log.ts` counts what it writes.
 */
import { createHook } from 'node:async_hooks'
import type { ChildProcess } from 'node:child_process'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import pg from 'pg'
import { toJavaScriptPath } from '#worker/isolation/index.ts'
import { RUNNER_ENTRY } from '#worker/runner/staged-code.ts'
import { FrameCounter } from './frames.ts'
import type { Wire } from './frames.ts'

const RUNNER_CODE = toJavaScriptPath(RUNNER_ENTRY)
/** A kind and a length, worker/runner/frames.ts. */
const RUNNER_FRAME = { headerBytes: 5, lengthAt: 1, lengthBytes: 4, isLittleEndian: true }

export type Counted = {
  statements: number
  'gRPC frames': number
  'gRPC bytes': number
  'runner frames': number
  'runner bytes': number
  promises: number
  timers: number
}

type Sent = { text?: string } | string

export class Counters implements Disposable {
  readonly #undo = new DisposableStack()
  readonly #runner: Wire = { frames: 0, bytes: 0 }
  readonly #unanswered = new Map<pg.Client, number>()
  #promises = 0
  #timers = 0
  #sentStatements = 0
  #statements: string[] = []
  /** Grows with everything that is counted, and with each answer of PostgreSQL. */
  #activity = 0

  /** Begin before the product starts, so that each of its connections and runners is counted. */
  constructor() {
    this.#countStatements()
    this.#countRunners()
    const hook = createHook({
      init: (_id, type) => {
        if (type === 'PROMISE') this.#promises += 1
        else if (type === 'Timeout') this.#timers += 1
      },
    }).enable()
    this.#undo.defer(() => hook.disable())
  }

  counted(grpc: Wire): Counted {
    const runner = this.#runner
    return {
      statements: this.#sentStatements,
      'gRPC frames': grpc.frames,
      'gRPC bytes': grpc.bytes,
      'runner frames': runner.frames,
      'runner bytes': runner.bytes,
      promises: this.#promises,
      timers: this.#timers,
    }
  }

  /** Changes while statements or runners are at work. */
  get activity(): number {
    return this.#activity + this.#runner.bytes
  }

  /** Whether PostgreSQL has answered everything. */
  get isAnswered(): boolean {
    return [...this.#unanswered.values()].every((count) => count <= 0)
  }

  /** The statements since the last call, each on one line. */
  takeStatements(): string[] {
    const taken = this.#statements
    this.#statements = []
    return taken.map((text) => text.replaceAll(/\s+/g, ' ').trim())
  }

  [Symbol.dispose](): void {
    this.#undo.dispose()
  }

  #countStatements(): void {
    const prototype = pg.Client.prototype as { query: (...args: unknown[]) => unknown }
    const original = prototype.query
    const sent = (client: pg.Client, query: Sent) => this.#sent(client, query)
    prototype.query = function (this: pg.Client, ...args: unknown[]) {
      sent(this, args[0] as Sent)
      return original.apply(this, args)
    }
    this.#undo.defer(() => void (prototype.query = original))
  }

  #sent(client: pg.Client, query: Sent): void {
    const unanswered = this.#unanswered.get(client)
    if (unanswered === undefined) {
      const answered = () => {
        this.#activity += 1
        this.#unanswered.set(client, (this.#unanswered.get(client) ?? 0) - 1)
      }
      const { connection } = client as unknown as { connection: NodeJS.EventEmitter }
      connection.on('readyForQuery', answered)
      client.once('end', () => void this.#unanswered.delete(client))
    }
    this.#unanswered.set(client, (unanswered ?? 0) + 1)
    this.#activity += 1
    this.#sentStatements += 1
    this.#statements.push(typeof query === 'string' ? query : (query.text ?? 'COPY'))
  }

  /** Both directions of the standard streams of the processes that the product starts. */
  #countRunners(): void {
    const onProcess = (message: unknown) => {
      const child = (message as { process: ChildProcess }).process
      // The product reads and writes the streams from then on.
      child.once('spawn', () => {
        if (child.spawnargs.some((argument) => argument.endsWith(RUNNER_CODE))) this.#countStreams(child)
      })
    }
    subscribe('child_process', onProcess)
    this.#undo.defer(() => void unsubscribe('child_process', onProcess))
  }

  #countStreams({ stdin, stdout }: ChildProcess): void {
    if (stdin === null || stdout === null) return
    const [sent, received] = [
      new FrameCounter(this.#runner, RUNNER_FRAME),
      new FrameCounter(this.#runner, RUNNER_FRAME),
    ]
    const write = stdin.write.bind(stdin) as (chunk: Buffer, ...rest: unknown[]) => boolean
    stdin.write = (chunk: Buffer, ...rest: unknown[]) => {
      sent.push(chunk)
      return write(chunk, ...rest)
    }
    stdout.on('data', (chunk: Buffer) => received.push(chunk))
  }
}
