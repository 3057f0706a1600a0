/**
 * One session with a manager, from Register to the end of the stream: Hello, heartbeats, and messages of the manager,
 * which it forwards. It changes no run itself.
 */
import { create } from '@bufbuild/protobuf'
import type { MessageInitShape } from '@bufbuild/protobuf'
import { status } from '@grpc/grpc-js'
import type { ServiceError as GrpcError } from '@grpc/grpc-js'
import { SessionRequestSchema, WorkerLimitsSchema } from '#proto/index.ts'
import type {
  RegisterResponse,
  ServiceClient,
  SessionResponse,
  WorkerMeasurementsSchema,
  WorkerService,
} from '#proto/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { errorMessageOf } from '#core/program/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs } from '#core/time.ts'
import type { Identity } from '../identity/identity.ts'
import type { Lease } from '../session/lease.ts'
import { toModuleRequest } from '../modules/index.ts'
import type { ModuleCache } from '../modules/index.ts'
import type { OfflineTasks } from '../offline/index.ts'
import type { Runs } from '../runs/runs.ts'
import { createLoadMeter, freeMemoryBytes } from '../session/machine.ts'
import { Outbox } from '../session/outbox.ts'
import type { SessionStream } from '../session/outbox.ts'

export type SessionDeps = {
  client: ServiceClient<typeof WorkerService>
  identity: Identity
  registered: RegisterResponse
  bootId: string
  runMemoryBytes: number | undefined
  runs: Runs
  offline: Pick<OfflineTasks, 'count' | 'connect' | 'disconnect' | 'replace'>
  modules: ModuleCache
  lease: Lease
  /** What the worker measures of itself now. */
  measure: () => MessageInitShape<typeof WorkerMeasurementsSchema>
  logger: Logger
  /** Called when the stream is established and reconciled. */
  onWelcome: () => void
}

/** The end of a session, with the reconnect delay if the manager sent one. */
export type SessionEnd = { reconnectAfterMs: number | undefined; cause: string }

const WELCOME_DEADLINE_MS = 10_000
/** Heartbeats vary by this share of their interval, so that workers do not send in step. */
const JITTER = 0.2
/** A stream without answers for this many intervals is dead. */
const MAX_SILENT_INTERVALS = 3
/** Limits that apply if a manager sends none. */
const DEFAULT_LIMITS = {
  maxInlineResultBytes: 256n * 1024n,
  maxStagedResultBytes: 16n * 1024n * 1024n,
  maxChunkBytes: 256n * 1024n,
  maxMessageBytes: 4n * 1024n * 1024n,
  takesOutputInResult: false,
  keepsState: false,
  takesOfflineRuns: false,
}
/** Hello is the first heartbeat; the heartbeats themselves count from 1. */
const HELLO_SEQUENCE = 0n

/** Resolves when the stream has ended for any reason; an aborted signal ends it. */
export function holdSession(deps: SessionDeps, signal: AbortSignal): Promise<SessionEnd> {
  return new Promise((resolve) => new Session(deps, resolve).begin(signal))
}

class Session {
  readonly #deps: SessionDeps
  readonly #stream: SessionStream
  readonly #outbox: Outbox
  readonly #end: (end: SessionEnd) => void
  readonly #cpuLoad = createLoadMeter()
  readonly #leaseTtlMs: number
  #intervalMs: number
  #sequence = HELLO_SEQUENCE
  #lastHeardMs = monotonicMs()
  #isWelcome = false
  #timer: NodeJS.Timeout | undefined
  #isOver = false

  constructor(deps: SessionDeps, end: (end: SessionEnd) => void) {
    const { registered } = deps
    this.#deps = deps
    this.#end = end
    this.#intervalMs = Number(registered.heartbeatIntervalMs)
    this.#leaseTtlMs = Number(registered.leaseTtlMs)
    this.#stream = deps.client.session()
    this.#outbox = new Outbox(this.#stream, registered.limits ?? create(WorkerLimitsSchema, DEFAULT_LIMITS))
  }

  begin(signal: AbortSignal): void {
    const { registered, identity, bootId, runs, offline, lease, runMemoryBytes = 0 } = this.#deps
    const onAbort = () => this.#leave(errorMessageOf(signal.reason), undefined)
    signal.addEventListener('abort', onAbort, { once: true })
    const stop = (cause: string, reconnectAfterMs?: number) => {
      signal.removeEventListener('abort', onAbort)
      this.#leave(cause, reconnectAfterMs)
    }
    this.#stream.on('data', (response: SessionResponse) => this.#receive(response, stop))
    this.#stream.on('error', (error: GrpcError) => stop(error.details === '' ? error.message : error.details))
    this.#stream.on('end', () => stop('the manager ended the stream'))
    lease.restarted()
    lease.sent(HELLO_SEQUENCE)
    const hello = {
      workerId: identity.workerId,
      workerSecret: identity.workerSecret,
      sessionEpoch: registered.sessionEpoch,
      bootId,
      runMemoryBytes: BigInt(runMemoryBytes),
      takesOfflineTasks: true,
      offlineTasks: offline.count,
      ...runs.claims(),
    }
    this.#stream.write(create(SessionRequestSchema, { message: { case: 'hello', value: hello } }))
    this.#timer = setTimeout(() => stop('the manager did not answer Hello'), WELCOME_DEADLINE_MS)
    if (signal.aborted) onAbort()
  }

  #receive(response: SessionResponse, stop: (cause: string, reconnectAfterMs?: number) => void): void {
    const { runs, offline, lease, modules, logger } = this.#deps
    this.#lastHeardMs = monotonicMs()
    const { message } = response
    if (!this.#isWelcome && message.case !== 'welcome') return stop('the first message of the manager must be Welcome')
    switch (message.case) {
      case 'welcome':
        if (this.#isWelcome) return stop('the manager sent Welcome twice')
        this.#isWelcome = true
        lease.renewed(HELLO_SEQUENCE, this.#leaseTtlMs)
        runs.connect(this.#outbox, message.value)
        offline.connect((tasks) => this.#outbox.enqueue({ case: 'offlineReady', value: { tasks } }))
        this.#deps.onWelcome()
        this.#beatLater(stop)
        return
      case 'assign':
        for (const assignment of message.value.assignments) runs.take(assignment)
        return
      case 'cancel':
        for (const run of message.value.runs) runs.cancel(run)
        return
      case 'leaseRenewed':
        lease.renewed(message.value.sequence, Number(message.value.leaseTtlMs))
        this.#intervalMs = Number(message.value.heartbeatIntervalMs) || this.#intervalMs
        return
      case 'resultAck':
        for (const { run, recorded } of message.value.receipts) if (run !== undefined) runs.acknowledge(run, recorded)
        return
      case 'prefetch':
        for (const module of message.value.modules) {
          modules
            .get(toModuleRequest(module), AbortSignal.timeout(60_000))
            .then((held) => held.release())
            .catch((error: unknown) =>
              logger.debug({ digest: module.digest, err: error }, 'failed to prefetch a module'),
            )
        }
        return
      case 'drain':
        runs.isDraining = message.value.draining
        return
      case 'goaway':
        logger.info({ reason: message.value.reason }, 'the manager requested a reconnect')
        return stop(message.value.reason, Number(message.value.reconnectAfterMs))
      case 'guestReply':
        runs.answerGuest(message.value)
        return
      case 'offlineTasks':
        offline.replace(message.value)
        return
      case undefined:
        // An unknown message of a newer manager is ignored.
        return
    }
  }

  #beatLater(stop: (cause: string) => void): void {
    clearTimeout(this.#timer)
    const delayMs = this.#intervalMs * (1 + JITTER * (2 * Math.random() - 1))
    this.#timer = setTimeout(() => {
      if (monotonicMs() - this.#lastHeardMs > MAX_SILENT_INTERVALS * this.#intervalMs) {
        return stop('the manager did not answer heartbeats')
      }
      this.#beat()
      this.#beatLater(stop)
    }, delayMs)
  }

  #beat(): void {
    const { runs, modules, lease, measure } = this.#deps
    runs.resendUnconfirmed()
    runs.giveBackSlow()
    runs.tellWhetherItTakesRuns()
    const changes = modules.takeChanges()
    this.#sequence++
    const value = {
      sequence: this.#sequence,
      freeSlots: runs.freeSlots,
      running: runs.count,
      cpuLoad: this.#cpuLoad(),
      freeMemoryBytes: freeMemoryBytes(),
      finishedTotal: BigInt(runs.finishedTotal),
      cachedDigestsAdded: changes.added,
      cachedDigestsRemoved: changes.removed,
      preparing: runs.preparing(),
      measurements: measure(),
    }
    lease.sent(this.#sequence)
    // Bypasses the outbox: a heartbeat must not wait behind results.
    this.#stream.write(create(SessionRequestSchema, { message: { case: 'heartbeat', value } }))
  }

  #leave(cause: string, reconnectAfterMs: number | undefined): void {
    if (this.#isOver) return
    this.#isOver = true
    clearTimeout(this.#timer)
    this.#deps.runs.disconnect()
    this.#deps.offline.disconnect()
    // The stream reports its own end as an error again, which has no listener any more.
    this.#stream.removeAllListeners('data')
    this.#stream.on('error', () => undefined)
    this.#outbox.close()
    this.#stream.end()
    setTimeout(() => this.#stream.cancel(), 100).unref()
    this.#end({ cause, reconnectAfterMs })
  }
}

/** Node's messages for a certificate of an unknown authority. */
const UNKNOWN_AUTHORITY = /self-signed certificate|unable to (?:get|verify)/

/** Maps an error of a registration: `unauthenticated` and `unprocessable` if a retry is useless. */
export function explainRegisterError(error: unknown, address: string): ServiceError {
  const { code, details = '' } = error as Partial<GrpcError>
  switch (code) {
    case status.UNAUTHENTICATED:
      return new ServiceError(
        'unauthenticated',
        `the manager at ${address} does not know this join token: ${details}`,
        {
          cause: error,
        },
      )
    case status.FAILED_PRECONDITION:
    case status.INVALID_ARGUMENT:
      return new ServiceError('unprocessable', `the manager at ${address} refused this worker: ${details}`, {
        cause: error,
      })
    default: {
      if (error instanceof ServiceError) return error
      // grpc-js includes the reason in a sentence about its resolver.
      const [, wrapped] = /Last error: (?:Error: )?([^\n]*)/.exec(details.split('. Resolution note', 1)[0] ?? '') ?? []
      const reason = wrapped ?? (details === '' && error instanceof Error ? error.message : details)
      const help = UNKNOWN_AUTHORITY.test(reason)
        ? 'its certificate is signed by an unknown authority; get the join token from the manager again, which contains the fingerprint of the certificate, or set SKEIN_GRPC_TLS_CA'
        : reason
      return new ServiceError('unavailable', `the manager at ${address} cannot be reached: ${help}`, { cause: error })
    }
  }
}
