/** Membership with a manager: one session after the other, what the lease covers, and who the worker is. */
import { hostname } from 'node:os'
import { WorkerService, createServiceClient } from '#proto/index.ts'
import type { RegisterResponse, ServiceClient } from '#proto/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { ErrorKind } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import type { ModuleRuntime } from '#core/wasm/index.ts'
import type { WorkerConfig } from '../identity/config.ts'
import { writeIdentity } from '../identity/identity.ts'
import type { Identity } from '../identity/identity.ts'
import type { IsolationLevel } from '../isolation/index.ts'
import type { Lease } from '../session/lease.ts'
import type { ModuleCache } from '../modules/index.ts'
import type { Runs } from '../runs/runs.ts'
import type { ClientCertificate } from '../session/client-certificate.ts'
import type { ManagerCredentials } from '../session/credentials.ts'
import { machineFacts } from '../session/machine.ts'
import { explainRegisterError, holdSession } from './session.ts'

/** Core modules, those that import WASI preview 1, and components of WASI 0.2. */
export const RUNTIMES = ['core', 'wasi-preview1', 'component'] satisfies ModuleRuntime[]

/** Waits that tests shorten. */
export type WorkerTiming = { reconnectMinMs: number; reconnectMaxMs: number; leaseCheckMs: number }

const REGISTER_DEADLINE_MS = 10_000
/** Digests told at registration, by the protocol. */
const MAX_CACHED_DIGESTS = 1_000
/** A session that held so long makes the next wait short again. */
const STABLE_SESSION_MS = 10_000
/** Refusals of the first registration that no repetition heals. */
const FINAL_KINDS = new Set<ErrorKind>(['unauthenticated', 'unprocessable', 'forbidden'])
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024
/** How often the worker looks whether its certificate is due. */
const RENEWAL_CHECK_MS = 60_000

/** Who we are, as soon as the manager said so. */
export type Member = { identity: Identity | undefined }

export type MembershipDeps = {
  config: WorkerConfig
  logger: Logger
  /** Of the product; the manager shows it and may refuse it. */
  version: string
  timing: WorkerTiming
  credentials: ManagerCredentials
  certificate: ClientCertificate
  /** Connections that were made before are no longer right: the worker shows another certificate. */
  onNewCertificate: () => void
  /** Before the session begins. */
  onRegistered: (registered: RegisterResponse) => void
  /** Where others of the site get modules; empty: nowhere. */
  modulePeerAddress: string
  identityPath: string
  member: Member
  slots: number
  backlog: number
  runs: Runs
  modules: ModuleCache
  lease: Lease
  isolation: IsolationLevel
  /** Tasks of domains are refused. */
  isPlatformOnly: boolean
}

/** Keeps one session after the other, and ends what the lease no longer covers. */
export class Membership {
  readonly #deps: MembershipDeps
  readonly #bootId = newId()
  readonly #abort = new AbortController()
  #sessionAbort = new AbortController()
  #leaseTimer: NodeJS.Timeout | undefined
  #client: ServiceClient<typeof WorkerService> | undefined
  /** The client was made before the worker had the certificate that it shows now. */
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

  /** Resolves with the worker's id when the first session stands. */
  join(signal: AbortSignal | undefined): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>()
    signal?.addEventListener('abort', () => reject(signal.reason as Error), { once: true })
    this.#ended = this.#keepSessions(resolve, reject)
    this.#leaseTimer = setInterval(() => this.#watchLease(), this.#deps.timing.leaseCheckMs)
    return promise
  }

  async leave(): Promise<void> {
    clearInterval(this.#leaseTimer)
    this.#abort.abort(new ServiceError('unavailable', 'the worker is stopping'))
    this.#sessionAbort.abort(this.#abort.signal.reason)
    await this.#ended
    this.#client?.close()
  }

  async #keepSessions(onJoined: (id: string) => void, onRefused: (error: ServiceError) => void): Promise<void> {
    const { logger, timing, config } = this.#deps
    let waitMs = timing.reconnectMinMs
    let isJoined = false
    let lastRefusal = ''
    while (!this.#abort.signal.aborted) {
      const startedMs = monotonicMs()
      let reconnectAfterMs: number | undefined
      try {
        const end = await this.#holdOneSession((id) => {
          isJoined = true
          lastRefusal = ''
          this.isConnected = true
          logger.info({ workerId: id, manager: config.manager }, 'joined')
          onJoined(id)
        })
        reconnectAfterMs = end.reconnectAfterMs
        if (!this.#abort.signal.aborted) logger.warn({ cause: end.cause }, 'the session with the manager ended')
      } catch (error) {
        const refusal = explainRegisterError(error, config.manager)
        if (FINAL_KINDS.has(kindOf(refusal)) && !isJoined) return onRefused(refusal)
        // Said once, not at each try: a manager that is away for a night fills no log.
        if (!this.#abort.signal.aborted) logger[refusal.message === lastRefusal ? 'debug' : 'warn'](refusal.message)
        lastRefusal = refusal.message
      }
      this.isConnected = false
      if (monotonicMs() - startedMs > STABLE_SESSION_MS) waitMs = timing.reconnectMinMs
      const jitter = 0.5 + Math.random()
      await sleep((reconnectAfterMs ?? waitMs) * jitter, this.#abort.signal).catch(() => undefined)
      waitMs = Math.min(waitMs * 2, timing.reconnectMaxMs)
    }
  }

  async #holdOneSession(onJoined: (id: string) => void) {
    const { runs, modules, lease, logger } = this.#deps
    let registered = await this.#register(await this.#connect())
    if (await this.#hasBecomeAnother(registered)) registered = await this.#register(await this.#connect())
    const identity = await this.#remember(registered)
    // Another connection when the worker has a certificate to show from now on.
    const client = await this.#connect()
    this.#sessionAbort = new AbortController()
    if (this.#abort.signal.aborted) this.#sessionAbort.abort(this.#abort.signal.reason)
    const onWelcome = () => onJoined(identity.workerId)
    const deps = { client, identity, registered, bootId: this.#bootId, runs, modules, lease, logger, onWelcome }
    return await holdSession(deps, this.#sessionAbort.signal)
  }

  async #connect(): Promise<ServiceClient<typeof WorkerService>> {
    if (this.#client !== undefined && !this.#isDialledBefore) return this.#client
    this.#client?.close()
    this.#isDialledBefore = false
    const { config, credentials } = this.#deps
    const dialling = await credentials.channel(config.manager)
    this.#client = createServiceClient(WorkerService, config.manager, dialling.credentials, {
      ...dialling.options,
      'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
      // The loop of sessions decides when to dial; a channel that waits for minutes by itself would only be in its way.
      'grpc.max_reconnect_backoff_ms': 1_000,
    })
    return this.#client
  }

  async #register(client: ServiceClient<typeof WorkerService>): Promise<RegisterResponse> {
    const { config, version, slots, backlog, modules, member, credentials, certificate } = this.#deps
    const wantsCertificate = credentials.isTls(config.manager) && certificate.isDue(Date.now())
    const request = {
      joinToken: credentials.joinSecret,
      workerId: member.identity?.workerId ?? '',
      workerSecret: member.identity?.workerSecret ?? '',
      name: this.name,
      bootId: this.#bootId,
      version,
      labels: config.labels,
      ...machineFacts(),
      slots,
      backlog,
      runtimes: RUNTIMES,
      isolation: this.#deps.isolation,
      platformOnly: this.#deps.isPlatformOnly,
      cachedDigests: modules.digests().slice(-MAX_CACHED_DIGESTS),
      certificateRequest: wantsCertificate ? await certificate.request() : new Uint8Array(),
      modulePeerAddress: this.#deps.modulePeerAddress,
    }
    return await client.register(request, { deadlineMs: REGISTER_DEADLINE_MS, signal: this.#abort.signal })
  }

  /** It was revoked and joined anew: the certificate that it has is that of the former worker, and it asks for its own. */
  async #hasBecomeAnother(registered: RegisterResponse): Promise<boolean> {
    const { certificate } = this.#deps
    await this.#takeIdentity(registered)
    if (registered.workerSecret === '' || registered.certificate !== undefined || certificate.shown === undefined)
      return false
    await certificate.forget()
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
    if (member.identity === undefined) throw new ServiceError('unavailable', 'the manager gave no secret')
    this.#deps.onRegistered(registered)
    return member.identity
  }

  /** The session under way keeps its connection; the next one is dialled anew. */
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
      if (!this.#abort.signal.aborted) logger.warn({ err: error }, 'failed to renew the certificate of this worker')
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
    logger.warn({ hasSlept }, 'the lease ended; stopping its runs, which other workers may take')
    // The manager must hear that these runs are gone, and Hello is where it asks.
    this.#sessionAbort.abort(new ServiceError('unavailable', 'the lease ended'))
  }
}
