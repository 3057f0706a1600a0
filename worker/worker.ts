/** A worker: its parts, how they are joined, and the loop that keeps a session with a manager. */
import { readFile } from 'node:fs/promises'
import { availableParallelism, hostname } from 'node:os'
import { join } from 'node:path'
import { WorkerService, createServiceClient } from '#proto/index.ts'
import type { RegisterResponse, ServiceClient } from '#proto/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { ErrorKind } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { DEFAULT_MODULE_BOUNDS } from '#core/wasm/index.ts'
import type { ModuleRuntime } from '#core/wasm/index.ts'
import { AssignmentJournal } from './assignment-journal.ts'
import type { WorkerConfig } from './config.ts'
import { lockFolder } from './folder-lock.ts'
import { readIdentity, writeIdentity } from './identity.ts'
import type { Identity } from './identity.ts'
import { reachableFolder } from './isolation/index.ts'
import { Lease } from './lease.ts'
import { ModuleCache, createGrpcModuleSource } from './modules/index.ts'
import { createRunnerPool, stageRunnerCode } from './runner/index.ts'
import { Runs } from './runs.ts'
import { createCredentials } from './session/credentials.ts'
import type { ManagerCredentials } from './session/credentials.ts'
import { machineFacts } from './session/machine.ts'
import { explainRegisterError, holdSession } from './session/session.ts'
import { Spool } from './spool/index.ts'
import { Components, stageTranspilerCode } from './transpile/index.ts'

/** Core modules, those that import WASI preview 1, and components of WASI 0.2. */
export const RUNTIMES = ['core', 'wasi-preview1', 'component'] satisfies ModuleRuntime[]

export type StartWorkerOptions = {
  config: WorkerConfig
  logger: Logger
  /** Of the product; the manager shows it and may refuse it. */
  version: string
  signal?: AbortSignal
  timing?: Partial<WorkerTiming>
}

/** Waits that tests shorten. */
export type WorkerTiming = { reconnectMinMs: number; reconnectMaxMs: number; leaseCheckMs: number }

export type Worker = { id: string; stop: () => Promise<void> }

export const DEFAULT_TIMING: WorkerTiming = { reconnectMinMs: 250, reconnectMaxMs: 10_000, leaseCheckMs: 250 }

/** Per slot: enough that a slot which comes free never waits for a round trip (proto, RegisterRequest.backlog). */
const BACKLOG_PER_SLOT = 64
const REGISTER_DEADLINE_MS = 10_000
/** Digests told at registration, by the protocol. */
const MAX_CACHED_DIGESTS = 1_000
/** A session that held so long makes the next wait short again. */
const STABLE_SESSION_MS = 10_000
/** How long a stopping worker waits for the acknowledgement of its last results; they are on disk anyway. */
const LAST_RESULTS_MS = 2_000
/** Refusals of the first registration that no repetition heals. */
const FINAL_KINDS = new Set<ErrorKind>(['unauthenticated', 'unprocessable', 'forbidden'])
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024

/**
 * Joins a manager and works for it until it is stopped. Resolves when the first session stands, however long the manager
 * takes to appear. Rejects with `unauthenticated` when the manager does not know the token, `forbidden` when it shows
 * another certificate than the token names, `unprocessable` when it does not take this worker, `invalid_state` when another worker uses the folder, and with the signal's reason.
 */
export async function startWorker(options: StartWorkerOptions): Promise<Worker> {
  const { config, logger, signal } = options
  const folder = config.workerDir ?? join(config.dataDir, 'worker')
  const open = await reachableFolder(folder)
  // What was opened closes in reverse order, when a later part fails to open as well as when the worker stops.
  await using opening = new AsyncDisposableStack()
  const lock = await lockFolder(join(folder, 'lock'))
  opening.defer(() => lock.release())
  const identityPath = join(folder, 'identity')
  const identity = await readIdentity(identityPath)
  const credentials = createCredentials({
    token: config.token?.reveal() ?? '',
    authority: config.tlsAuthority === undefined ? undefined : await readFile(config.tlsAuthority, 'utf8'),
    isInsecure: config.insecure,
    knownFingerprint: identity?.fingerprint,
  })
  if (identity === undefined && config.token === undefined) {
    await lock.release()
    throw new ServiceError(
      'malformed',
      'SKEIN_WORKER_TOKEN or --token is needed: the join token that the manager shows',
    )
  }
  const slots = config.slots ?? availableParallelism()
  const spool = await Spool.open(join(folder, 'spool'), { maxBytes: config.spoolBytes })
  opening.defer(() => spool.close())
  const member: Member = { identity }
  const source = createGrpcModuleSource({
    credentials,
    managerAddress: config.manager,
    bearer: () => member.identity && `${member.identity.workerId}.${member.identity.workerSecret}`,
  })
  opening.defer(() => source.close())
  const { maxModuleBytes } = DEFAULT_MODULE_BOUNDS
  const modulesFolder = join(open, 'modules')
  const modules = await ModuleCache.open({
    folder: modulesFolder,
    maxBytes: config.cacheBytes,
    maxModuleBytes,
    source: source.source,
    logger,
    onRemoved: (digest) => components.forget(digest),
  })
  opening.defer(() => modules.close())
  const components = await Components.open(
    { folder: join(modulesFolder, 'components'), codeFolder: await stageTranspilerCode(join(open, 'transpiler')) },
    modules.digests(),
  )
  opening.defer(() => components.close())
  const pool = createRunnerPool({
    slots,
    runners: Math.min(slots, availableParallelism()),
    codeFolder: await stageRunnerCode(join(open, 'runner')),
    modulesFolder,
    maxModuleBytes,
    allowGc: config.allowGc,
    logger,
  })
  opening.defer(() => pool.close())
  const backlog = slots * BACKLOG_PER_SLOT
  const journal = await AssignmentJournal.open(join(folder, 'assignments'), logger)
  const runs = new Runs({ pool, modules, components, spool, journal, slots, backlog, logger })
  const lease = new Lease({ now: monotonicMs, wallNow: Date.now })
  const membership = new Membership({
    ...options,
    timing: { ...DEFAULT_TIMING, ...options.timing },
    credentials,
    identityPath,
    member,
    slots,
    backlog,
    runs,
    modules,
    lease,
  })

  opening.defer(() => membership.leave())

  await runs.resume()
  const id = await membership.join(signal)
  const parts = opening.move()
  let stopping: Promise<void> | undefined
  const stop = async () => {
    await runs.drain(config.drainMs)
    await waitUntil(() => spool.size === 0 || !membership.isConnected, LAST_RESULTS_MS)
    await parts.disposeAsync()
  }
  return { id, stop: () => (stopping ??= stop()) }
}

/** Who we are, as soon as the manager said so. */
type Member = { identity: Identity | undefined }

type MembershipDeps = StartWorkerOptions & {
  timing: WorkerTiming
  credentials: ManagerCredentials
  identityPath: string
  member: Member
  slots: number
  backlog: number
  runs: Runs
  modules: ModuleCache
  lease: Lease
}

/** Keeps one session after the other, and ends what the lease no longer covers. */
class Membership {
  readonly #deps: MembershipDeps
  readonly #bootId = newId()
  readonly #abort = new AbortController()
  #sessionAbort = new AbortController()
  #leaseTimer: NodeJS.Timeout | undefined
  #client: ServiceClient<typeof WorkerService> | undefined
  #ended: Promise<void> | undefined
  isConnected = false

  constructor(deps: MembershipDeps) {
    this.#deps = deps
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
    const client = await this.#connect()
    const registered = await this.#register(client)
    const identity = await this.#remember(registered)
    this.#sessionAbort = new AbortController()
    if (this.#abort.signal.aborted) this.#sessionAbort.abort(this.#abort.signal.reason)
    const onWelcome = () => onJoined(identity.workerId)
    const deps = { client, identity, registered, bootId: this.#bootId, runs, modules, lease, logger, onWelcome }
    return await holdSession(deps, this.#sessionAbort.signal)
  }

  async #connect(): Promise<ServiceClient<typeof WorkerService>> {
    if (this.#client !== undefined) return this.#client
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

  #register(client: ServiceClient<typeof WorkerService>): Promise<RegisterResponse> {
    const { config, version, slots, backlog, modules, member, credentials } = this.#deps
    const request = {
      joinToken: credentials.joinSecret,
      workerId: member.identity?.workerId ?? '',
      workerSecret: member.identity?.workerSecret ?? '',
      name: config.name ?? hostname(),
      bootId: this.#bootId,
      version,
      labels: config.labels,
      ...machineFacts(),
      slots,
      backlog,
      runtimes: RUNTIMES,
      cachedDigests: modules.digests().slice(-MAX_CACHED_DIGESTS),
    }
    return client.register(request, { deadlineMs: REGISTER_DEADLINE_MS, signal: this.#abort.signal })
  }

  async #remember(registered: RegisterResponse): Promise<Identity> {
    const { member, identityPath } = this.#deps
    if (registered.workerSecret !== '') {
      const { workerId, workerSecret } = registered
      member.identity = { workerId, workerSecret, fingerprint: this.#deps.credentials.fingerprint }
      await writeIdentity(identityPath, member.identity)
    }
    if (member.identity === undefined) throw new ServiceError('unavailable', 'the manager gave no secret')
    return member.identity
  }

  #watchLease(): void {
    const { lease, runs, logger } = this.#deps
    if (lease.isValid()) return lease.followClock()
    const hasSlept = lease.hasSlept()
    lease.end()
    if (!runs.endForLease() && !hasSlept) return
    logger.warn({ hasSlept }, 'the lease ended; what was running is stopped, others may have it now')
    // The manager must hear that these runs are gone, and Hello is where it asks.
    this.#sessionAbort.abort(new ServiceError('unavailable', 'the lease ended'))
  }
}

/** Looks each few milliseconds until it holds or the time is over. */
async function waitUntil(holds: () => boolean, deadlineMs: number): Promise<void> {
  const deadline = monotonicMs() + deadlineMs
  while (!holds() && monotonicMs() < deadline) await sleep(10)
}
