/**
 * The manager's side of the protocol under a test's control: it records what a worker says and says what the test wants.
 * It holds no rule of the manager; those are tested with the real one in test/tasks/.
 */
import { createServer } from 'node:http'
import type { Server as HttpServer, IncomingMessage, ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { create } from '@bufbuild/protobuf'
import type { MessageInitShape } from '@bufbuild/protobuf'
import { Metadata, Server, ServerCredentials, status } from '@grpc/grpc-js'
import {
  AssignmentSchema,
  OnLost,
  RegisterResponseSchema,
  SessionResponseSchema,
  WorkerService,
  parsePullPath,
  serviceDefinition,
  sessionRequests,
} from '#proto/index.ts'
import type {
  RegisterRequest,
  RunResult,
  ServerDuplexStream,
  ServiceHandlers,
  SessionRequest,
  SessionResponse,
} from '#proto/index.ts'
import { digestOf, exampleBytes, until } from './pool.ts'
import type { ExampleName } from './pool.ts'

type Said = NonNullable<SessionRequest['message']>
type Case = Exclude<Said['case'], undefined>
export type SaidOf<C extends Case> = Extract<Said, { case: C }>['value']
type Answer = NonNullable<MessageInitShape<typeof SessionResponseSchema>['message']>
type WelcomeLists = Extract<Answer, { case: 'welcome' }>['value']

export const JOIN_TOKEN = 'let-me-in'
export const TICKET = 'a-ticket'

export class ScriptedManager {
  readonly #server = new Server()
  readonly registrations: RegisterRequest[] = []
  /** The part of the proxy. */
  #modules: HttpServer | undefined
  readonly bearers: string[] = []
  readonly fetches: { digest: string; offset: number }[] = []
  said: Said[] = []
  stream: ServerDuplexStream<SessionRequest, SessionResponse> | undefined
  sessions = 0
  address = ''
  /** Changed by tests before a worker connects. */
  leaseTtlMs = 20_000
  heartbeatIntervalMs = 1_000
  answersHeartbeats = true
  acknowledges = true
  welcome: (hello: SaidOf<'hello'>) => WelcomeLists = ({ running, spooled }) => ({
    keep: running.flatMap(({ run }) => run ?? []),
    resend: spooled,
  })
  readonly modules = new Map<string, Uint8Array>()
  /** Serves a module itself, and says so. */
  onFetch: (digest: string, response: ServerResponse) => boolean = () => false

  constructor() {
    for (const name of ['add', 'fibonacci', 'hello', 'endless'] as const) {
      const bytes = exampleBytes(name)
      this.modules.set(digestOf(bytes), bytes)
    }
  }

  static async start(): Promise<ScriptedManager> {
    const manager = new ScriptedManager()
    await manager.listen('127.0.0.1:0')
    return manager
  }

  /** `tls`: of both listeners. */
  async listen(address: string, tls?: { cert: Buffer; key: Buffer }): Promise<void> {
    const credentials =
      tls === undefined
        ? ServerCredentials.createInsecure()
        : ServerCredentials.createSsl(null, [{ cert_chain: tls.cert, private_key: tls.key }])
    const workerHandlers: ServiceHandlers<typeof WorkerService> = {
      register: (call, callback) => {
        this.registrations.push(call.request)
        const isKnown = call.request.workerSecret === 'secret-1'
        if (!isKnown && call.request.joinToken !== JOIN_TOKEN) {
          const metadata = new Metadata()
          return callback({ code: status.UNAUTHENTICATED, details: 'unknown token', metadata, name: '', message: '' })
        }
        callback(
          null,
          create(RegisterResponseSchema, {
            workerId: 'worker-1',
            workerSecret: isKnown ? '' : 'secret-1',
            sessionEpoch: BigInt(this.registrations.length),
            heartbeatIntervalMs: BigInt(this.heartbeatIntervalMs),
            leaseTtlMs: BigInt(this.leaseTtlMs),
            limits: {
              maxInlineResultBytes: 256n * 1024n,
              maxStagedResultBytes: 16n * 1024n * 1024n,
              maxChunkBytes: 64n * 1024n,
              maxMessageBytes: 1024n * 1024n,
            },
          }),
        )
      },
      renew: (_call, callback) => callback({ code: status.UNIMPLEMENTED }),
      session: (stream) => {
        this.stream = stream
        this.sessions++
        stream.on('error', () => undefined)
        const hearAll = async () => {
          for await (const request of sessionRequests(stream)) this.#hear(request)
          stream.end()
        }
        // A stream that breaks is what some tests are about.
        hearAll().catch(() => undefined)
      },
    }
    this.#server.addService(serviceDefinition(WorkerService), workerHandlers)
    const port = await new Promise<number>((resolve, reject) => {
      this.#server.bindAsync(address, credentials, (error, bound) => (error === null ? resolve(bound) : reject(error)))
    })
    this.address = `127.0.0.1:${port}`
    const serve = (request: IncomingMessage, response: ServerResponse) => this.#serve(request, response)
    const modules = tls === undefined ? createServer(serve) : createTlsServer(tls, serve)
    await new Promise<void>((resolve) => modules.listen(0, '127.0.0.1', resolve))
    this.#modules = modules
  }

  /** host:port of what serves modules. */
  get proxyAddress(): string {
    const address = this.#modules?.address() as AddressInfo | null | undefined
    return `127.0.0.1:${address?.port}`
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const digest = parsePullPath(request.url ?? '')?.reference ?? ''
    const offset = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0)
    this.bearers.push(String(request.headers.authorization))
    this.fetches.push({ digest, offset })
    if (this.onFetch(digest, response)) return
    const bytes = this.modules.get(digest)
    if (bytes === undefined) return void response.writeHead(404).end()
    response.writeHead(offset === 0 ? 200 : 206, {
      'content-length': bytes.length - offset,
      ...(offset === 0 ? {} : { 'content-range': `bytes ${offset}-${bytes.length - 1}/${bytes.length}` }),
    })
    response.end(bytes.subarray(offset))
  }

  tell(message: Answer): void {
    this.stream?.write(create(SessionResponseSchema, { message }))
  }

  /** Everything of one kind that was said in all sessions so far. */
  heard<C extends Case>(kind: C): SaidOf<C>[] {
    return this.said.flatMap((message) => (message.case === kind ? [message.value as SaidOf<C>] : []))
  }

  results(): RunResult[] {
    return this.heard('result').flatMap(({ results }) => results)
  }

  async result(runId: string): Promise<RunResult> {
    const find = () => this.results().find(({ run }) => run?.runId === runId)
    await until(() => find() !== undefined)
    return find() as RunResult
  }

  /** Waits for the worker's `running` of a run. */
  async running(runId: string): Promise<void> {
    await until(() => this.heard('stateUpdate').some(({ running }) => running.some((run) => run.runId === runId)))
  }

  assign(
    module: ExampleName | Uint8Array,
    runId: string,
    more: Partial<MessageInitShape<typeof AssignmentSchema>> = {},
  ): void {
    this.tell({ case: 'assign', value: { assignments: [this.assignment(module, runId, more)] } })
  }

  assignment(
    module: ExampleName | Uint8Array,
    runId: string,
    more: Partial<MessageInitShape<typeof AssignmentSchema>> = {},
  ) {
    const bytes = typeof module === 'string' ? exampleBytes(module) : module
    this.modules.set(digestOf(bytes), bytes)
    return create(AssignmentSchema, {
      run: runRef(runId),
      taskId: 'task-1',
      domainId: 'north',
      taskName: typeof module === 'string' ? module : 'run',
      module: {
        digest: digestOf(bytes),
        sizeBytes: BigInt(bytes.length),
        sourceAddress: this.proxyAddress,
        ticket: TICKET,
      },
      inputsJson: '[]',
      limits: {
        timeoutMs: 30_000n,
        memoryLimitBytes: 64n * 1024n * 1024n,
        maxOutputBytes: 1024n * 1024n,
        maxResultBytes: 16n * 1024n * 1024n,
      },
      onLost: OnLost.REQUEUE,
      ...more,
    } as MessageInitShape<typeof AssignmentSchema>)
  }

  /** Ends the stream under the worker. */
  breakStream(): void {
    this.stream?.emit('error', { code: status.UNAVAILABLE, details: 'broken by the test' })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.forceShutdown()
    const modules = this.#modules
    if (modules === undefined) return
    const closed = new Promise((resolve) => modules.close(resolve))
    modules.closeAllConnections()
    await closed
  }

  #hear({ message }: SessionRequest): void {
    this.said.push(message)
    if (message.case === 'hello') this.tell({ case: 'welcome', value: this.welcome(message.value) })
    if (message.case === 'heartbeat' && this.answersHeartbeats) {
      const { sequence } = message.value
      const heartbeatIntervalMs = BigInt(this.heartbeatIntervalMs)
      this.tell({
        case: 'leaseRenewed',
        value: { sequence, leaseTtlMs: BigInt(this.leaseTtlMs), heartbeatIntervalMs },
      })
    }
    if (message.case === 'result' && this.acknowledges) this.acknowledge(message.value.results, true)
  }

  acknowledge(results: RunResult[], recorded: boolean): void {
    const receipts = results.flatMap(({ run }) => (run === undefined ? [] : [{ run, recorded }]))
    this.tell({ case: 'resultAck', value: { receipts } })
  }
}

export function runRef(runId: string, fence = 1n) {
  return { runId, attempt: 1, fence }
}
