/** A worker: its parts and their connections. */
import { access, constants, readFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import { SECRET_KEY_FILE } from '#core/keyring/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Check, Readiness } from '#core/readiness/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { DEFAULT_MODULE_BOUNDS } from '#guests/wasm/index.ts'
import { AssignmentJournal } from './runs/assignment-journal.ts'
import { workerFolder } from './identity/config.ts'
import type { WorkerConfig } from './identity/config.ts'
import { lockWorkerFolder } from './identity/folder-lock.ts'
import { GuestHttp } from './http/index.ts'
import { readIdentity } from './identity/identity.ts'
import { shareMemory } from './identity/memory.ts'
import { endLeftOvers, establishIsolation, reachableFolder } from './isolation/index.ts'
import type { IsolationLevel } from './isolation/index.ts'
import { Lease } from './session/lease.ts'
import { Managers } from './membership/managers.ts'
import { Membership } from './membership/membership.ts'
import type { Member, WorkerTiming } from './membership/membership.ts'
import {
  Bandwidth,
  ModuleCache,
  SiteTrust,
  checkPeerListener,
  PeerServer,
  ProxySource,
  createPeerSource,
  peerAddressOf,
} from './modules/index.ts'
import type { ModuleSource } from './modules/index.ts'
import { OfflineStore, OfflineTasks } from './offline/index.ts'
import type { OfflineTasksDeps } from './offline/index.ts'
import { createRunnerPool, stageRunnerCode } from './runner/index.ts'
import type { RunnerPool, RunnerPoolOptions } from './runner/index.ts'
import { Runs } from './runs/runs.ts'
import { ClientCertificate } from './session/client-certificate.ts'
import { createCredentials } from './session/credentials.ts'
import { Spool } from './spool/index.ts'
import { serveStatus, statusPath } from './status/index.ts'
import type { WorkerStatus } from './status/index.ts'
import { Components, stageTranspilerCode } from './transpile/index.ts'

export type StartWorkerOptions = {
  config: WorkerConfig
  logger: Logger
  /** Readiness of the process; the worker adds its checks. */
  readiness: Readiness
  /** Version of Skein; the manager shows it and can refuse it. */
  version: string
  signal?: AbortSignal
  /** The platform runs on the same machine, started by the same program. */
  isBesidePlatform?: boolean
  /** Other machines can reach the platform of this machine. */
  isExposed?: boolean
  timing?: Partial<WorkerTiming>
  /** Called once with the function that drains the worker: it takes no new runs until it is started again or a manager resumes it. */
  onDrainRequest?: (drain: () => void) => void
}

export type Worker = { id: string; isolation: IsolationLevel; stop: () => Promise<void> }

export const DEFAULT_TIMING: WorkerTiming = { reconnectMinMs: 250, reconnectMaxMs: 8_000, leaseCheckMs: 250 }

/** The backlog per slot: enough that a free slot never waits for a round trip (proto, RegisterRequest.backlog). */
const BACKLOG_PER_SLOT = 512
/** With limited memory, a runner without runs ends after this. */
const FRUGAL_IDLE_MS = 10_000
/** How long a stopping worker waits for the acknowledgement of its last results, which are on disk. */
const LAST_RESULTS_MS = 2_000

/**
 * Joins a manager and runs tasks until it is stopped. Resolves when the first session is established, waiting for the
 * manager as long as needed. Rejects with `unauthenticated` for an unknown token, `forbidden` if the manager's
 * certificate does not match the token, `unprocessable` if the manager refuses this worker, `invalid_state` if another
 * worker uses the folder, and with the signal's reason.
 */
export async function startWorker(options: StartWorkerOptions): Promise<Worker> {
  const { config, logger, signal, readiness } = options
  const folder = workerFolder(config)
  const open = await reachableFolder(folder)
  // Opened resources are closed in reverse order, also if a later part fails to open.
  await using opening = new AsyncDisposableStack()
  await takeFolder(opening, { folder, open, logger })
  const credentials = await openCredentials(folder, config, logger)
  const managers = new Managers(config.managers)
  const isolation = await establishIsolation({ required: config.isolation, folder: open })
  const isPlatformOnly = await servesPlatformOnly(isolation.level, options)
  const spool = await openSpool(opening, join(folder, 'spool'), config, logger)
  const store = await openModules(opening, { config, logger, folder, open, credentials, managers, isolation })
  const { modules, components } = store
  const { slots, backlog, runMemoryBytes, runners } = capacityOf(config)
  const pool = await openRunners(opening, { slots, runners, open, isolation, config, logger })
  const journal = await AssignmentJournal.open(join(folder, 'assignments'), logger)
  const limits = { slots, backlog, isPlatformOnly, isMemoryLimited: runMemoryBytes !== undefined }
  const http = new GuestHttp({ isEnabled: config.http, privateHosts: config.httpHosts })
  const runs = new Runs({ pool, modules, components, spool, journal, http, ...limits, logger })
  options.onDrainRequest?.(() => {
    runs.isDraining = true
  })
  const clocks = { now: monotonicMs, wallNow: Date.now }
  const lease = new Lease(clocks)
  const offline = await openOffline(opening, { folder, modules, runs, clocks, isPlatformOnly, logger })
  const membership = new Membership({
    ...options,
    ...credentials,
    ...store.membership,
    timing: { ...DEFAULT_TIMING, ...options.timing },
    managers,
    slots,
    backlog,
    runMemoryBytes,
    runs,
    offline,
    modules,
    lease,
    measure: () => measurementsOf({ pool, spool, modules }),
    isolation: isolation.level,
    isPlatformOnly,
  })
  opening.defer(() => membership.leave())
  readiness.add(...checksOf({ membership, lease, pool, runs }))
  const told = { ...options, ...credentials, managers, membership, lease, pool, runs, spool, modules, slots }
  const status = await serveStatus(statusPath(folder), () => ({
    ...statusOf(told),
    isolation: isolation.level,
    platform_only: isPlatformOnly,
  }))
  opening.defer(() => status.close())

  await runs.resume()
  const id = await membership.join(signal)
  const parts = opening.move()
  let stopping: Promise<void> | undefined
  const stop = async () => {
    await runs.drain(config.drainMs)
    await waitUntil(() => spool.size === 0 || !membership.isConnected, LAST_RESULTS_MS)
    await parts.disposeAsync()
  }
  return { id, isolation: isolation.level, stop: () => (stopping ??= stop()) }
}

type RunnersOptions = Pick<ReturnType<typeof capacityOf>, 'slots' | 'runners'> &
  Pick<StartWorkerOptions, 'config' | 'logger'> & { open: string; isolation: RunnerPoolOptions['isolation'] }

async function openRunners(
  opening: AsyncDisposableStack,
  { slots, runners, open, isolation, config, logger }: RunnersOptions,
): Promise<RunnerPool> {
  const pool = createRunnerPool({
    slots,
    ...runners,
    codeFolder: await stageRunnerCode(join(open, 'runner')),
    isolation,
    maxModuleBytes: DEFAULT_MODULE_BOUNDS.maxModuleBytes,
    allowGc: config.allowGc,
    logger,
  })
  opening.defer(() => pool.close())
  return pool
}

async function openSpool(opening: AsyncDisposableStack, path: string, config: WorkerConfig, logger: Logger) {
  const spool = await Spool.open(path, { maxBytes: config.spoolBytes })
  opening.defer(() => spool.close())
  tellDamage(spool, path, logger)
  return spool
}

/** What the file of results has lost since the last start. */
function tellDamage({ damage, size }: Spool, path: string, logger: Logger): void {
  if (damage === undefined) return
  const facts = { path, bytes: damage.bytes, results: size }
  if (damage.isInside)
    logger.warn(
      facts,
      'the file of results was changed: the results that were changed are lost, and on_lost decides what becomes of their runs',
    )
  else
    logger.warn(
      facts,
      'the file of results ends in what is no result: it was cut or changed, or its last write did not finish; the results before that are kept',
    )
}

/** How many runs the worker takes, in which memory, and what its pool of runners is. */
function capacityOf({ memoryBytes, slots: wanted = availableParallelism() }: WorkerConfig) {
  if (memoryBytes === undefined) {
    const runners = { runners: Math.min(wanted, availableParallelism()) }
    return { slots: wanted, backlog: wanted * BACKLOG_PER_SLOT, runMemoryBytes: undefined, runners }
  }
  const memory = shareMemory(memoryBytes)
  return {
    slots: Math.min(wanted, memory.slots),
    // A run that waits behind others would take memory that the manager has given to no other run.
    backlog: 0,
    runMemoryBytes: memory.runsBytes,
    // Another thread of a process takes less memory than another process.
    runners: { runners: 1, memory, idleMs: FRUGAL_IDLE_MS },
  }
}

/** Opens the identity of this worker and what it shows to managers. Throws `malformed` when it can join none. */
async function openCredentials(folder: string, config: WorkerConfig, logger: Logger) {
  const identityPath = join(folder, 'identity')
  const certificate = await ClientCertificate.open(join(folder, 'certificate'))
  let identity = await readIdentity(identityPath)
  if (certificate.hasEnded(Date.now())) {
    logger.warn('the certificate of this worker has expired; joining as a new worker')
    await certificate.discard()
    identity = undefined
  }
  if (identity === undefined && config.token === undefined)
    throw new ServiceError(
      'malformed',
      'a join token is required: set SKEIN_WORKER_TOKEN, or name a file with it by SKEIN_WORKER_TOKEN_FILE or --token-file',
    )
  if (config.managers.length === 0)
    throw new ServiceError('malformed', 'a manager is required: set SKEIN_WORKER_MANAGER, or use --manager HOST:PORT')
  const credentials = createCredentials({
    token: config.token?.reveal() ?? '',
    authority: config.tlsAuthority === undefined ? undefined : await readFile(config.tlsAuthority, 'utf8'),
    isInsecure: config.insecure,
    knownFingerprint: identity?.fingerprint,
    shown: () => certificate.shown,
  })
  const member: Member = { identity }
  return { certificate, credentials, identityPath, member }
}

/**
 * Whether tasks of domains are refused. Only the kernel can protect files of the same user from an escaped guest, so they are not
 * accepted on a server.
 */
async function servesPlatformOnly(level: IsolationLevel, options: StartWorkerOptions): Promise<boolean> {
  const isPlatformOnly = level === 'process' && options.isExposed === true && (await holdsPlatformFiles(options))
  if (isPlatformOnly)
    options.logger.warn(
      'refusing tasks of domains: guests have isolation level process and share a user with the files of the platform, which other machines can reach; install bubblewrap or run the worker as root (SKEIN_WORKER_ISOLATION)',
    )
  return isPlatformOnly
}

type StoreOptions = {
  config: WorkerConfig
  logger: Logger
  folder: string
  /** Part of the folder that isolated processes reach. */
  open: string
  credentials: Awaited<ReturnType<typeof openCredentials>>
  managers: Managers
  isolation: Awaited<ReturnType<typeof establishIsolation>>
}

/** Makes this worker the only one of the folder, and ends the processes that one before it left there when it was killed. */
async function takeFolder(
  opening: AsyncDisposableStack,
  { folder, open, logger }: { folder: string; open: string; logger: Logger },
): Promise<void> {
  const lock = await lockWorkerFolder(folder)
  opening.defer(() => lock.release())
  const processes = endLeftOvers(open)
  if (processes > 0) logger.warn({ processes }, 'ended processes that were left behind when this worker was killed')
}

/** Modules of this machine and what is made of them: from the proxy, and from workers of the same site. */
async function openModules(
  opening: AsyncDisposableStack,
  { config, logger, folder, open, credentials: { credentials, certificate }, managers, isolation }: StoreOptions,
) {
  const proxy = new ProxySource({
    dial: credentials.channel,
    managerAddress: () => managers.current,
    bandwidth: config.bandwidthBytes === undefined ? undefined : new Bandwidth(config.bandwidthBytes),
  })
  const source: ModuleSource = (wanted, offset, ending) => proxy.read(wanted, offset, ending)
  const isTls = config.managers.some(credentials.isTls)
  const peerListener = checkPeerListener(config, isTls)
  const trust = new SiteTrust({ isTls, shown: () => certificate.shown })
  const modulesFolder = join(folder, 'modules')
  const modules = await ModuleCache.open({
    folder: modulesFolder,
    maxBytes: config.cacheBytes,
    maxModuleBytes: DEFAULT_MODULE_BOUNDS.maxModuleBytes,
    source: peerListener === undefined ? source : createPeerSource({ trust, source, logger }),
    logger,
    onRemoved: (digest) => components.remove(digest),
  })
  opening.defer(() => modules.close())
  const peers = peerListener && (await PeerServer.start({ ...peerListener, trust, modules, logger }))
  opening.defer(() => peers?.close())
  const components = await Components.open(
    {
      isolation,
      folder: join(modulesFolder, 'components'),
      codeFolder: await stageTranspilerCode(join(open, 'transpiler')),
      isFrugal: config.memoryBytes !== undefined,
    },
    modules.digests(),
  )
  opening.defer(() => components.close())
  const membership = {
    onNewCertificate: () => {
      proxy.redial()
      trust.useNewCertificate()
    },
    onRegistered: (registered: Parameters<SiteTrust['update']>[0]) => trust.update(registered),
    modulePeerAddress: peers === undefined ? '' : peerAddressOf(config, peers.port),
  }
  return { modules, components, membership }
}

type OfflineOptions = Omit<OfflineTasksDeps, 'store'> & { folder: string }

/** Schedules that this worker starts by itself. */
async function openOffline(opening: AsyncDisposableStack, { folder, ...deps }: OfflineOptions): Promise<OfflineTasks> {
  const store = new OfflineStore(join(folder, 'offline'), deps.logger)
  const offline = await OfflineTasks.start({ ...deps, store })
  opening.defer(() => offline.close())
  return offline
}

type ToldParts = Pick<StartWorkerOptions, 'config' | 'version' | 'readiness'> &
  Pick<Awaited<ReturnType<typeof openCredentials>>, 'certificate' | 'member'> &
  CheckedParts & { managers: Managers; spool: Spool; modules: ModuleCache; slots: number }

/** What `skein-worker status` shows. */
function statusOf(told: ToldParts): Omit<WorkerStatus, 'isolation' | 'platform_only'> {
  const { version, readiness, certificate, member, managers, membership, lease, pool, runs, spool, modules, slots } =
    told
  return {
    id: member.identity?.workerId ?? null,
    name: membership.name,
    version,
    pid: process.pid,
    manager: managers.current,
    state: runs.isDraining ? 'draining' : membership.isConnected ? 'connected' : 'disconnected',
    readiness: readiness.read(),
    lease_ms: lease.remainingMs() ?? null,
    slots,
    runs: runs.list(),
    finished_total: runs.finishedTotal,
    spooled_results: spool.size,
    cached_modules: modules.digests().length,
    runners: pool.stats().runners.map(({ pid, residentBytes, underWay }) => ({
      pid,
      resident_bytes: residentBytes,
      under_way: underWay,
    })),
    resident_bytes: process.memoryUsage.rss(),
    memory_limit_bytes: told.config.memoryBytes ?? null,
    certificate_ends_at: certificate.endsAt?.toISOString() ?? null,
  }
}

type CheckedParts = { membership: Membership; lease: Lease; pool: RunnerPool; runs: Runs }

/** The worker can accept runs only if all of these pass. */
function checksOf({ membership, lease, pool, runs }: CheckedParts): Check[] {
  const checks: [string, () => string | undefined][] = [
    ['manager', () => (membership.isConnected ? undefined : 'no session with a task manager')],
    [
      'lease',
      () => (lease.isValid() ? undefined : 'no valid lease: a task manager may give its runs to other workers'),
    ],
    [
      'runners',
      () => (pool.stats().isUnstartable ? 'the processes that run modules do not start: see the log' : undefined),
    ],
    ['work', () => (runs.isDraining ? 'draining: no new run is taken' : undefined)],
  ]
  return checks.map(([name, read]) => ({ name, isRequired: true, read }))
}

/** The measurements in heartbeats, which the manager exposes as metrics: a worker has no listener. */
function measurementsOf({ pool, spool, modules }: { pool: RunnerPool; spool: Spool; modules: ModuleCache }) {
  const { runners, kills } = pool.stats()
  const { bytes, hits, fetches, fetchFailures } = modules.counts
  const runnerBytes = runners.reduce((sum, { residentBytes }) => sum + residentBytes, 0)
  return {
    residentBytes: BigInt(process.memoryUsage.rss() + runnerBytes),
    runners: runners.length,
    spooledResults: spool.size,
    spooledBytes: BigInt(spool.bytes),
    oldestSpooledMs: BigInt(Math.round(spool.oldestMs)),
    cachedModules: modules.digests().length,
    cachedBytes: BigInt(bytes),
    moduleHitsTotal: BigInt(hits),
    moduleFetchesTotal: BigInt(fetches),
    moduleFetchFailuresTotal: BigInt(fetchFailures),
    runnerKillsTotal: Object.fromEntries(Object.entries(kills).map(([reason, count]) => [reason, BigInt(count)])),
  }
}

/** True if escaped guests could read private files of the platform. */
async function holdsPlatformFiles({ config, isBesidePlatform }: StartWorkerOptions): Promise<boolean> {
  if (isBesidePlatform === true) return true
  const secretKey = join(config.dataDir, SECRET_KEY_FILE)
  return access(secretKey, constants.R_OK).then(
    () => true,
    () => false,
  )
}

/** Polls every few milliseconds until the condition holds or the deadline passes. */
async function waitUntil(holds: () => boolean, deadlineMs: number): Promise<void> {
  const deadline = monotonicMs() + deadlineMs
  while (!holds() && monotonicMs() < deadline) await sleep(10)
}
