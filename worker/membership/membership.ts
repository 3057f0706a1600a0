/** Membership with one of the managers at a time: successive sessions, the lease and the identity. */
import { hostname } from 'node:os'
import { WorkerService, createServiceClient } from '#proto/index.ts'
import type { RegisterResponse, ServiceClient } from '#proto/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { ErrorKind } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { HTTP_RUNTIME, STATE_RUNTIME } from '#guests/wasm/index.ts'
import type { ModuleRuntime } from '#guests/wasm/index.ts'
import type { WorkerConfig } from '../identity/config.ts'
import { writeIdentity } from '../identity/identity.ts'
import type { Identity } from '../identity/identity.ts'
import type { IsolationLevel } from '../isolation/index.ts'
import type { Lease } from '../session/lease.ts'
import type { ModuleCache } from '../modules/index.ts'
import type { OfflineTasks } from '../offline/index.ts'
import type { Runs } from '../runs/runs.ts'
import type { ClientCertificate } from '../session/client-certificate.ts'
import type { ManagerCredentials } from '../session/credentials.ts'
import { machineFacts } from '../session/machine.ts'
import type { Managers } from './managers.ts'
import { explainRegisterError, holdSession } from './session.ts'
import type { SessionDeps } from './session.ts'

/** Core modules, those that import WASI preview 1, components of WASI 0.2, and those of them that use the state of their task. */
export const RUNTIMES = [...(['core', 'wasi-preview1', 'component'] satisfies ModuleRuntime[]), STATE_RUNTIME]

const runtimesOf = ({ http }: Pick<WorkerConfig, 'http'>) => (http ? [...RUNTIMES, HTTP_RUNTIME] : RUNTIMES)

/** Waits that tests shorten. */
export type WorkerTiming = { reconnectMinMs: number; reconnectMaxMs: number; leaseCheckMs: number }

const REGISTER_DEADLINE_MS = 10_000
/** Digests in a registration, limited by the protocol. */
const MAX_CACHED_DIGESTS = 1_000
/** Different reasons why managers could not be joined, of which each is logged once. */
const MAX_LOGGED_REFUSALS = 100
/** After a session of this length the next wait is short again. */
const STABLE_SESSION_MS = 10_000
/** Errors of the first registration for which a retry is useless. */
const FINAL_KINDS = new Set<ErrorKind>(['unauthenticated', 'unprocessable', 'forbidden'])
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024
/** Interval of the check whether the certificate needs renewal. */
const RENEWAL_CHECK_MS = 60_000

/** The identity, once the manager assigned it. */
export type Member = { identity: Identity | undefined }

export type MembershipDeps = {
  config: WorkerConfig
  logger: Logger
  /** Version of Skein; the manager shows it and can refuse it. */
  version: string
  timing: WorkerTiming
  managers: Managers
  credentials: ManagerCredentials
  certificate: ClientCertificate
  /** Called when the worker has a new certificate: existing connections must be replaced. */
  onNewCertificate: () => void
  /** Called before the session begins. */
  onRegistered: (registered: RegisterResponse) => void
  /** Address at which other workers of the site fetch modules; empty: none. */
  modulePeerAddress: string
  identityPath: string
  member: Member
  slots: number
  backlog: number
  /** Memory of runs at once; undefined: only slots limit them. */
  runMemoryBytes: number | undefined
  runs: Runs
  offline: Pick<OfflineTasks, 'count' | 'connect' | 'disconnect' | 'replace'>
  modules: ModuleCache
  lease: Lease
  measure: SessionDeps['measure']
  isolation: IsolationLevel
  /** Tasks of domains are refused. */
  isPlatformOnly: boolean
}

/** Runs one session after the other, and ends runs that the lease no longer covers. */
export class Membership {
  readonly #deps: MembershipDeps
  readonly #bootId = newId()
  readonly #abort = new AbortController()
  #sessionAbort = new AbortController()
  #leaseTimer: NodeJS.Timeout | undefined
  #client: ServiceClient<typeof WorkerService> | undefined
  /** The client was created before the worker had its current certificate. */
  #isDialledBefore = false
  #lookedAtCertificateMs = monotonicMs()
  #ended: Promise<void> | undefined
  isConnected = false

  constructor(deps: MembershipDeps) {
    this.#deps = deps
  }

  get name(): string {
    return this.#deps.config.name ?? hostname()
  }

  /** Resolves with the worker's id when the first session is established. */
  join(signal: AbortSignal | undefined): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>()
    signal?.addEventListener('abort', () => reject(signal.reason as Error), { once: true })
    this.#ended = this.#keepSessions(resolve, reject)
    this.#leaseTimer = setInterval(() => this.#watchLease(), this.#deps.timing.leaseCheckMs)
    return promise
  }

  async leave(): Promise<void> {
    clearInterval(this.#leaseTimer)
    this.#abort.abort(new ServiceError('unavailable', 'the worker is shutting down'))
    this.#sessionAbort.abort(this.#abort.signal.reason)
    await this.#ended
    this.#client?.close()
  }

  async #keepSessions(onJoined: (id: string) => void, onRefused: (error: ServiceError) => void): Promise<void> {
    const { logger, timing, managers } = this.#deps
    let waitMs = timing.reconnectMinMs
    let isJoined = false
    // Each is logged once, not at each retry: a long outage of the managers must not fill the log.
    const refusals = new Set<string>()
    while (!this.#abort.signal.aborted) {
      const startedMs = monotonicMs()
      let reconnectAfterMs: number | undefined
      try {
        const end = await this.#holdOneSession((id) => {
          isJoined = true
          refusals.clear()
          managers.joined()
          this.isConnected = true
          logger.info({ workerId: id, manager: managers.current }, 'joined')
          onJoined(id)
        })
        reconnectAfterMs = end.reconnectAfterMs
        if (!this.#abort.signal.aborted)
          logger.warn({ cause: end.cause }, 'the session with the manager ended; reconnecting')
      } catch (error) {
        const refusal = explainRegisterError(error, managers.current)
        if (FINAL_KINDS.has(kindOf(refusal)) && !isJoined) return onRefused(refusal)
        if (!this.#abort.signal.aborted) logger[refusals.has(refusal.message) ? 'debug' : 'warn'](refusal.message)
        if (refusals.size < MAX_LOGGED_REFUSALS) refusals.add(refusal.message)
      }
      this.isConnected = false
      // The connection may be one to a machine that is gone, and a name may have other addresses.
      this.#isDialledBefore = true
      if (monotonicMs() - startedMs > STABLE_SESSION_MS) waitMs = timing.reconnectMinMs
      // At most the wait itself: all workers of a manager are back within the longest one.
      const jitter = 0.5 + Math.random() / 2
      // Another manager is tried soon, within the lease.
      const isRoundOver = managers.next()
      const pauseMs = isRoundOver ? (reconnectAfterMs ?? waitMs) : timing.reconnectMinMs
      await sleep(pauseMs * jitter, this.#abort.signal).catch(() => undefined)
      if (isRoundOver) waitMs = Math.min(waitMs * 2, timing.reconnectMaxMs)
    }
  }

  async #holdOneSession(onJoined: (id: string) => void) {
    const { runs, offline, modules, lease, measure, logger, runMemoryBytes } = this.#deps
    let registered = await this.#register(await this.#connect())
    if (await this.#dropFormerCertificate(registered)) registered = await this.#register(await this.#connect())
    const identity = await this.#remember(registered)
    // A new connection if the worker now has a certificate to present.
    const client = await this.#connect()
    this.#sessionAbort = new AbortController()
    if (this.#abort.signal.aborted) this.#sessionAbort.abort(this.#abort.signal.reason)
    const onWelcome = () => onJoined(identity.workerId)
    const bootId = this.#bootId
    const deps = {
      client,
      identity,
      registered,
      bootId,
      runMemoryBytes,
      runs,
      offline,
      modules,
      lease,
      measure,
      logger,
      onWelcome,
    }
    return await holdSession(deps, this.#sessionAbort.signal)
  }

  async #connect(): Promise<ServiceClient<typeof WorkerService>> {
    if (this.#client !== undefined && !this.#isDialledBefore) return this.#client
    this.#client?.close()
    this.#isDialledBefore = false
    const { managers, credentials } = this.#deps
    const dialling = await credentials.channel(managers.current)
    this.#client = createServiceClient(WorkerService, managers.current, dialling.credentials, {
      ...dialling.options,
      'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
      // The session loop decides when to connect; a channel with a backoff of minutes would delay it.
      'grpc.max_reconnect_backoff_ms': 1_000,
    })
    return this.#client
  }

  async #register(client: ServiceClient<typeof WorkerService>): Promise<RegisterResponse> {
    const { config, managers, version, slots, backlog, modules, member, credentials, certificate } = this.#deps
    const wantsCertificate = credentials.isTls(managers.current) && certificate.isDue(Date.now())
    const request = {
      joinToken: credentials.joinSecret,
      workerId: member.identity?.workerId ?? '',
      workerSecret: member.identity?.workerSecret ?? '',
      name: this.name,
      bootId: this.#bootId,
      version,
      labels: config.labels,
      ...machineFacts(this.#deps.runMemoryBytes),
      slots,
      backlog,
      runtimes: runtimesOf(this.#deps.config),
      isolation: this.#deps.isolation,
      platformOnly: this.#deps.isPlatformOnly,
      cachedDigests: modules.digests().slice(-MAX_CACHED_DIGESTS),
      certificateRequest: wantsCertificate ? await certificate.request() : new Uint8Array(),
      modulePeerAddress: this.#deps.modulePeerAddress,
    }
    return await client.register(request, { deadlineMs: REGISTER_DEADLINE_MS, signal: this.#abort.signal })
  }

  /**
   * The worker was revoked and joined as a new one: its certificate belongs to the former worker, so it requests a new
   * one.
   */
  async #dropFormerCertificate(registered: RegisterResponse): Promise<boolean> {
    const { certificate } = this.#deps
    await this.#takeIdentity(registered)
    if (registered.workerSecret === '' || registered.certificate !== undefined || certificate.shown === undefined)
      return false
    await certificate.discard()
    this.#showNewCertificate()
    return true
  }

  async #takeIdentity({ workerId, workerSecret }: RegisterResponse): Promise<void> {
    if (workerSecret === '') return
    const { member, identityPath, credentials } = this.#deps
    member.identity = { workerId, workerSecret, fingerprint: credentials.fingerprint }
    await writeIdentity(identityPath, member.identity)
  }

  async #remember(registered: RegisterResponse): Promise<Identity> {
    const { member, certificate } = this.#deps
    if (registered.certificate !== undefined) {
      await certificate.accept(registered.certificate)
      this.#showNewCertificate()
    }
    if (member.identity === undefined) throw new ServiceError('unavailable', 'the manager returned no worker secret')
    this.#deps.onRegistered(registered)
    return member.identity
  }

  /** The active session keeps its connection; the next one uses a new one. */
  #showNewCertificate(): void {
    this.#isDialledBefore = true
    this.#deps.onNewCertificate()
  }

  async #renewCertificate(): Promise<void> {
    const { certificate, member, logger } = this.#deps
    const client = this.#client
    if (client === undefined || member.identity === undefined || certificate.shown === undefined) return
    if (!certificate.isDue(Date.now())) return
    try {
      const { workerId, workerSecret } = member.identity
      const request = { workerId, workerSecret, certificateRequest: await certificate.request() }
      const renewed = await client.renew(request, { deadlineMs: REGISTER_DEADLINE_MS, signal: this.#abort.signal })
      if (renewed.certificate === undefined) return
      await certificate.accept(renewed.certificate)
      this.#showNewCertificate()
      logger.info('renewed the certificate of this worker')
    } catch (error) {
      if (!this.#abort.signal.aborted)
        logger.warn({ err: error }, 'failed to renew the certificate of this worker; retrying')
    }
  }

  #watchLease(): void {
    const { lease, runs, logger } = this.#deps
    if (monotonicMs() - this.#lookedAtCertificateMs > RENEWAL_CHECK_MS) {
      this.#lookedAtCertificateMs = monotonicMs()
      void this.#renewCertificate()
    }
    if (lease.isValid()) return lease.followClock()
    const hasSlept = lease.hasSlept()
    lease.end()
    if (!runs.endForLease() && !hasSlept) return
    logger.warn({ hasSlept }, 'the lease expired; stopping its runs, which can be assigned to other workers')
    // Hello reports to the manager that these runs ended.
    this.#sessionAbort.abort(new ServiceError('unavailable', 'the lease expired'))
  }
}
