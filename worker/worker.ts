/** A worker: its parts and how they are joined. */
import { access, constants, readFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import { SECRET_KEY_FILE } from '#core/keyring/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { DEFAULT_MODULE_BOUNDS } from '#core/wasm/index.ts'
import { AssignmentJournal } from './runs/assignment-journal.ts'
import { workerFolder } from './identity/config.ts'
import type { WorkerConfig } from './identity/config.ts'
import { lockWorkerFolder } from './identity/folder-lock.ts'
import { readIdentity } from './identity/identity.ts'
import { establishIsolation, reachableFolder } from './isolation/index.ts'
import type { IsolationLevel } from './isolation/index.ts'
import { Lease } from './session/lease.ts'
import { Membership } from './membership/membership.ts'
import type { Member, WorkerTiming } from './membership/membership.ts'
import {
  ModuleCache,
  SiteTrust,
  checkPeerListener,
  PeerServer,
  ProxySource,
  createPeerSource,
  peerAddressOf,
} from './modules/index.ts'
import type { ModuleSource } from './modules/index.ts'
import { createRunnerPool, stageRunnerCode } from './runner/index.ts'
import { Runs } from './runs/runs.ts'
import { ClientCertificate } from './session/client-certificate.ts'
import { createCredentials } from './session/credentials.ts'
import { Spool } from './spool/index.ts'
import { serveStatus, statusPath } from './status/index.ts'
import { Components, stageTranspilerCode } from './transpile/index.ts'

export type StartWorkerOptions = {
  config: WorkerConfig
  logger: Logger
  /** Of the product; the manager shows it and may refuse it. */
  version: string
  signal?: AbortSignal
  /** The platform runs beside this worker, started by the same program. */
  isBesidePlatform?: boolean
  /** Other machines can reach the platform of this machine. */
  isExposed?: boolean
  timing?: Partial<WorkerTiming>
}

export type Worker = { id: string; isolation: IsolationLevel; stop: () => Promise<void> }

export const DEFAULT_TIMING: WorkerTiming = { reconnectMinMs: 250, reconnectMaxMs: 10_000, leaseCheckMs: 250 }

/** Per slot: enough that a slot which comes free never waits for a round trip (proto, RegisterRequest.backlog). */
const BACKLOG_PER_SLOT = 512
/** How long a stopping worker waits for the acknowledgement of its last results; they are on disk anyway. */
const LAST_RESULTS_MS = 2_000

/**
 * Joins a manager and works for it until it is stopped. Resolves when the first session stands, however long the manager
 * takes to appear. Rejects with `unauthenticated` when the manager does not know the token, `forbidden` when it shows
 * another certificate than the token names, `unprocessable` when it does not take this worker, `invalid_state` when another worker uses the folder, and with the signal's reason.
 */
export async function startWorker(options: StartWorkerOptions): Promise<Worker> {
  const { config, logger, signal } = options
  const folder = workerFolder(config)
  const open = await reachableFolder(folder)
  // What was opened closes in reverse order, when a later part fails to open as well as when the worker stops.
  await using opening = new AsyncDisposableStack()
  const lock = await lockWorkerFolder(folder)
  opening.defer(() => lock.release())
  const identityPath = join(folder, 'identity')
  const certificate = await ClientCertificate.open(join(folder, 'certificate'))
  let identity = await readIdentity(identityPath)
  if (certificate.hasEnded(Date.now())) {
    logger.warn('the certificate of this worker has expired; joining as a new worker')
    await certificate.forget()
    identity = undefined
  }
  const credentials = createCredentials({
    token: config.token?.reveal() ?? '',
    authority: config.tlsAuthority === undefined ? undefined : await readFile(config.tlsAuthority, 'utf8'),
    isInsecure: config.insecure,
    knownFingerprint: identity?.fingerprint,
    shown: () => certificate.shown,
  })
  if (identity === undefined && config.token === undefined) {
    lock.release()
    throw new ServiceError(
      'malformed',
      'SKEIN_WORKER_TOKEN or --token is needed: the join token that the manager shows',
    )
  }
  const slots = config.slots ?? availableParallelism()
  const isolation = await establishIsolation({ required: config.isolation, folder: open })
  // Only the kernel keeps a guest that broke out from files of its own user: not where tenants of a server would try.
  const isPlatformOnly =
    isolation.level === 'process' && options.isExposed === true && (await holdsPlatformFiles(options))
  if (isPlatformOnly) {
    logger.warn(
      'tasks of domains are refused: guests have the isolation level process and share a user with the files of the platform, which other machines can reach; install bubblewrap or run the worker as root (SKEIN_WORKER_ISOLATION)',
    )
  }
  const spool = await Spool.open(join(folder, 'spool'), { maxBytes: config.spoolBytes })
  opening.defer(() => spool.close())
  const member: Member = { identity }
  const proxy = new ProxySource({ dial: credentials.channel, managerAddress: config.manager })
  const source: ModuleSource = (wanted, offset, ending) => proxy.read(wanted, offset, ending)
  const isTls = credentials.isTls(config.manager)
  const peerListener = checkPeerListener(config, isTls)
  const trust = new SiteTrust({ isTls, shown: () => certificate.shown })
  const { maxModuleBytes } = DEFAULT_MODULE_BOUNDS
  const modulesFolder = join(folder, 'modules')
  const modules = await ModuleCache.open({
    folder: modulesFolder,
    maxBytes: config.cacheBytes,
    maxModuleBytes,
    source: peerListener === undefined ? source : createPeerSource({ trust, source, logger }),
    logger,
    onRemoved: (digest) => components.forget(digest),
  })
  opening.defer(() => modules.close())
  const peers = peerListener && (await PeerServer.start({ ...peerListener, trust, modules, logger }))
  opening.defer(() => peers?.close())
  const components = await Components.open(
    {
      isolation,
      folder: join(modulesFolder, 'components'),
      codeFolder: await stageTranspilerCode(join(open, 'transpiler')),
    },
    modules.digests(),
  )
  opening.defer(() => components.close())
  const pool = createRunnerPool({
    slots,
    runners: Math.min(slots, availableParallelism()),
    codeFolder: await stageRunnerCode(join(open, 'runner')),
    isolation,
    maxModuleBytes,
    allowGc: config.allowGc,
    logger,
  })
  opening.defer(() => pool.close())
  const backlog = slots * BACKLOG_PER_SLOT
  const journal = await AssignmentJournal.open(join(folder, 'assignments'), logger)
  const runs = new Runs({ pool, modules, components, spool, journal, slots, backlog, isPlatformOnly, logger })
  const lease = new Lease({ now: monotonicMs, wallNow: Date.now })
  const membership = new Membership({
    ...options,
    timing: { ...DEFAULT_TIMING, ...options.timing },
    credentials,
    certificate,
    onNewCertificate: () => {
      proxy.redial()
      trust.useNewCertificate()
    },
    onRegistered: (registered) => trust.learn(registered),
    modulePeerAddress: peers === undefined ? '' : peerAddressOf(config, peers.port),
    identityPath,
    member,
    slots,
    backlog,
    runs,
    modules,
    lease,
    isolation: isolation.level,
    isPlatformOnly,
  })

  opening.defer(() => membership.leave())
  const status = await serveStatus(statusPath(folder), () => ({
    id: member.identity?.workerId ?? null,
    name: membership.name,
    version: options.version,
    pid: process.pid,
    manager: config.manager,
    state: runs.isDraining ? 'draining' : membership.isConnected ? 'connected' : 'disconnected',
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
    isolation: isolation.level,
    platform_only: isPlatformOnly,
    certificate_ends_at: certificate.endsAt?.toISOString() ?? null,
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

/** True when guests that broke out could read what the platform keeps for itself. */
async function holdsPlatformFiles({ config, isBesidePlatform }: StartWorkerOptions): Promise<boolean> {
  if (isBesidePlatform === true) return true
  const secretKey = join(config.dataDir, SECRET_KEY_FILE)
  return access(secretKey, constants.R_OK).then(
    () => true,
    () => false,
  )
}

/** Looks each few milliseconds until it holds or the time is over. */
async function waitUntil(holds: () => boolean, deadlineMs: number): Promise<void> {
  const deadline = monotonicMs() + deadlineMs
  while (!holds() && monotonicMs() < deadline) await sleep(10)
}
