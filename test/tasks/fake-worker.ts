/** A worker of a test, spoken by an independent client: proto-loader and the .proto files. */
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { credentials, loadPackageDefinition } from '@grpc/grpc-js'
import type { ClientDuplexStream, GrpcObject, ServiceError } from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'
import { expect } from 'vitest'
import { until } from './support.ts'

export type Message = Record<string, unknown>
export type Ref = { run_id: string; attempt: number; fence: string }
export type Assignment = Message & {
  run: Ref
  inputs_json: string
  task_name: string
  module: { digest: string; source_address: string }
}

type Channel = {
  register(request: Message, callback: (error: ServiceError | null, response: Message) => void): void
  session(): ClientDuplexStream<Message, Message>
  close(): void
}

const PROTO = join(import.meta.dirname, '../../proto')

const BEAT_MS = 100

/** A worker of this test: it sends heartbeats, and otherwise only the messages that the test gives it. */
export class FakeWorker {
  readonly #channel: Channel
  readonly #joinToken: string
  #stream: ClientDuplexStream<Message, Message> | undefined
  #beats: NodeJS.Timeout | undefined
  readonly received: Message[] = []
  failure: ServiceError | undefined
  id = ''
  secret = ''
  epoch = ''

  constructor({ grpcAddress, workerToken }: { grpcAddress: string; workerToken: string }) {
    this.#joinToken = workerToken
    const definition = loadSync(['cluster/v1/worker.proto'], {
      includeDirs: [PROTO],
      keepCase: true,
      longs: String,
      enums: String,
      arrays: true,
    })
    const loaded = loadPackageDefinition(definition)['skein'] as GrpcObject
    const services = (loaded['cluster'] as GrpcObject)['v1'] as unknown as {
      WorkerService: new (address: string, channel: unknown) => Channel
    }
    this.#channel = new services.WorkerService(grpcAddress, credentials.createInsecure())
  }

  async register(changes: Message = {}): Promise<Message> {
    const request = {
      join_token: this.#joinToken,
      worker_id: this.id,
      worker_secret: this.secret,
      name: 'fake',
      boot_id: 'boot-1',
      version: '0.1.0',
      labels: { fake: this.labels },
      os: 'linux',
      arch: 'x64',
      cpu_cores: 1,
      memory_bytes: String(2 ** 33),
      slots: 4,
      runtimes: ['core'],
      ...changes,
    }
    const answer = await new Promise<Message>((resolve, reject) => {
      this.#channel.register(request, (error, response) => (error === null ? resolve(response) : reject(error)))
    })
    this.id = String(answer['worker_id'])
    const secret = answer['worker_secret']
    if (typeof secret === 'string') this.secret = secret
    this.epoch = String(answer['session_epoch'])
    return answer
  }

  readonly labels = randomUUID()

  async hello(
    claims: {
      running?: { run: Ref; state: string }[]
      spooled?: Ref[]
      bootId?: string
      epoch?: string
      more?: Message
    } = {},
  ): Promise<Message> {
    clearInterval(this.#beats)
    const stream = this.#channel.session()
    this.#stream = stream
    stream.on('data', (message: Message) => {
      if (this.#stream === stream) this.received.push(message)
    })
    stream.on('error', (error: ServiceError) => {
      if (this.#stream === stream) this.failure ??= error
    })
    const before = this.received.length
    stream.write({
      hello: {
        worker_id: this.id,
        worker_secret: this.secret,
        session_epoch: claims.epoch ?? this.epoch,
        boot_id: claims.bootId ?? 'boot-1',
        running: claims.running ?? [],
        spooled: claims.spooled ?? [],
        ...claims.more,
      },
    })
    await this.#until('Welcome', () => this.received.length > before)
    const welcome = this.received[before]?.['welcome'] as Message | undefined
    expect(welcome).toBeDefined()
    this.#beats = setInterval(() => this.say({ heartbeat: { sequence: '1', free_slots: 4 } }), BEAT_MS)
    return welcome as Message
  }

  async join(): Promise<void> {
    await this.register()
    await this.hello()
  }

  say(message: Message): void {
    this.#stream?.write(message)
  }

  /** The stream breaks, as when the process dies. */
  leave(): void {
    this.breakStream()
    this.#channel.close()
  }

  breakStream(): void {
    clearInterval(this.#beats)
    const stream = this.#stream
    this.#stream = undefined
    stream?.cancel()
  }

  /** Each once, however often it was said; one that was made again has another fence. */
  get assignments(): Assignment[] {
    const said = this.received.flatMap(
      (message) => ((message['assign'] as Message | undefined)?.['assignments'] ?? []) as Assignment[],
    )
    return [...new Map(said.map((one) => [one.run.fence, one])).values()]
  }

  get receipts(): { run: Ref; recorded?: boolean }[] {
    return this.received.flatMap(
      (message) =>
        ((message['result_ack'] as Message | undefined)?.['receipts'] ?? []) as { run: Ref; recorded?: boolean }[],
    )
  }

  async assignment(index = 0): Promise<Assignment> {
    await this.#until('an assignment', () => this.assignments.length > index)
    return this.assignments[index] as Assignment
  }

  async receipt(index = 0): Promise<boolean> {
    await this.#until('a receipt', () => this.receipts.length > index)
    return this.receipts[index]?.recorded === true
  }

  result(run: Ref, results: unknown = [3]): void {
    this.say({
      result: {
        results: [{ run, state: 'TASK_STATE_COMPLETED', results_json: JSON.stringify(results), duration_ms: 1 }],
      },
    })
  }

  fail(run: Ref, reason: string): void {
    this.say({
      result: { results: [{ run, state: 'TASK_STATE_FAILED', reason, error: 'so it went', duration_ms: 1 }] },
    })
  }

  async #until(what: string, isTrue: () => boolean): Promise<void> {
    await until(
      what,
      () => Promise.resolve(this.failure ?? isTrue()),
      (value) => value === true || value instanceof Error,
    )
    if (this.failure !== undefined) throw this.failure
  }
}
