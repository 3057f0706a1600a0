/**
 * The task manager: HTTP routes for the shared app, and the gRPC listener for workers. It runs in the process of the API
 * or alone.
 */
import { randomUUID, X509Certificate } from 'node:crypto'
import { rename, writeFile } from 'node:fs/promises'
import type { Bus } from '#core/bus/index.ts'
import type { Secret } from '#core/config/index.ts'
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Check } from '#core/readiness/index.ts'
import type { Streams } from '#core/streams/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { fingerprintOf } from '#proto/index.ts'
import type { ReadChannel } from '#queues/index.ts'
import type { TaskAccess } from './access/access.ts'
import { createGuests } from './channels/guests.ts'
import type { ManagerConfig } from './config.ts'
import { readGiven } from './dispatch/given-messages.ts'
import { startDispatch } from './dispatch/server.ts'
import { DEFAULT_TIMING, type ManagerTiming } from './model/timing.ts'
import { createModuleRefs } from './modules/module-refs.ts'
import { proxyTokenOf } from './modules/tickets.ts'
import { ManagerServices } from './services.ts'
import { openSecrets } from './tasks/extras.ts'
import { prepareGrpcTls } from './tls/grpc-tls.ts'
import type { GrpcTls } from './tls/grpc-tls.ts'
import { ensureJoinToken } from './workers/tokens.ts'

export { MANAGER_SETTINGS } from './config.ts'
export { MANAGER_METRICS, managerGauges } from './metrics.ts'
export { prepareGrpcTls } from './tls/grpc-tls.ts'
export { readGrpcTlsFiles } from './tls/grpc-tls-files.ts'
export { proxyTokenOf } from './modules/tickets.ts'
export type { GrpcTls } from './tls/grpc-tls.ts'
export type { ManagerConfig } from './config.ts'
export { effectiveAuthMode, createTaskAccess, isLocal } from './access/access.ts'
export type { AuthMode, TaskAccess, TaskAccessDeps, TaskAction, TaskCaller, TaskDomain } from './access/access.ts'
export { startTaskAccess } from './task-access.ts'
export type { OwnTaskAccess } from './task-access.ts'
export { DEFAULT_TIMING } from './model/timing.ts'
export type { ManagerTiming } from './model/timing.ts'
export { renderLifecycle } from './model/lifecycle.ts'

export type ManagerDeps = {
  config: ManagerConfig
  database: Database
  bus: Bus
  keyring: Keyring
  access: TaskAccess
  streams: Streams
  /** Folder for incomplete uploads. */
  dataDir: string
  logger: Logger
  /** Intervals that tests shorten; heartbeat and lease default to the settings. */
  timing?: Partial<ManagerTiming>
  /** Certificate of the gRPC listener if the caller prepared it; otherwise from the settings. */
  tls?: GrpcTls | undefined
  /** File for the join token of workers on other machines, readable only by the owner. */
  tokenFile?: string
  /** Stored messages for guests that can read a channel; without it such calls fail. */
  readChannel?: ReadChannel | undefined
  /** File in which a proxy that shares the data folder finds the token of the managers. */
  proxyTokenFile?: string
}

export type Manager = {
  /** Routes for the HTTP app. */
  readonly routes: RoutePlugin
  /** host:port for workers. */
  readonly grpcAddress: string
  /** The join token: `<secret>`, or `<fingerprint of the certificate>.<secret>` with TLS. */
  readonly workerToken: string
  /** Readiness checks of the process: workers and the module proxy. */
  readonly checks: readonly Check[]
  /** Number of workers with a session at this manager. */
  readonly workerCount: number
  /** The bytes of an upload, for a proxy of the same process. Throws `not_found`. */
  readUpload(digest: string, offset: number, signal: AbortSignal): AsyncIterable<Buffer>
  /** Resolves with true once a worker has joined, with false at the deadline or on abort. */
  untilWorker(deadlineMs: number, signal: AbortSignal): Promise<boolean>
  stop(): Promise<void>
}

/** Polling interval of `untilWorker`. */
const JOIN_POLL_MS = 10

export async function startManager(deps: ManagerDeps): Promise<Manager> {
  const { config, database, bus, keyring, access, logger } = deps
  const tls = deps.tls ?? (await prepareGrpcTls(config, database, keyring))
  const fingerprint = tls === undefined ? undefined : fingerprintOf(new X509Certificate(tls.cert))
  const timing: ManagerTiming = {
    ...DEFAULT_TIMING,
    heartbeatIntervalMs: config.heartbeatIntervalMs,
    minLeaseMs: config.minLeaseMs,
    ...deps.timing,
  }
  const managerId = randomUUID()
  const joinToken = await ensureJoinToken(database, keyring, config.workerToken?.reveal())
  const workerToken = fingerprint === undefined ? joinToken : `${fingerprint}.${joinToken}`
  const proxyToken = proxyTokenOf(config.proxyToken, keyring)
  const services = new ManagerServices({
    ...deps,
    managerId,
    timing,
    proxyToken,
    tls: tls === undefined || fingerprint === undefined ? undefined : { certificate: tls.cert, fingerprint },
  })
  const { cluster, tickets } = services
  try {
    const dispatch = await startDispatch({
      cluster,
      writer: services.writer,
      leases: services.leases,
      measurements: services.measurements,
      tickets,
      output: services.output,
      recordOffline: services.recordOffline,
      delivery: {
        modules: createModuleRefs(config.proxyAddress, tickets),
        readGiven: (run) => readGiven(services.contents, run),
        openSecrets: (taskId, sealed) => openSecrets(keyring, taskId, Buffer.from(sealed, 'base64')),
      },
      guests: createGuests({ database, bus, access, readChannel: deps.readChannel }),
      logger,
      database,
      newId: randomUUID,
      managerId,
      host: config.host,
      port: config.grpcPort,
      tls,
    })
    await writeTokens(deps, workerToken, proxyToken)
    return {
      grpcAddress: dispatch.address,
      workerToken,
      checks: services.checks,
      get workerCount() {
        return cluster.size
      },
      readUpload: services.modules.readUpload,
      async untilWorker(deadlineMs, signal) {
        const end = monotonicMs() + deadlineMs
        while (cluster.size === 0) {
          if (signal.aborted || monotonicMs() > end) return false
          await sleep(JOIN_POLL_MS, signal).catch(() => undefined)
        }
        return true
      },
      routes: (app) => services.routes(app),
      async stop() {
        await dispatch.stop()
        await services.stop()
      },
    }
  } catch (error) {
    await services.stop()
    throw error
  }
}

async function writeTokens(
  { tokenFile, proxyTokenFile }: ManagerDeps,
  workerToken: string,
  proxyToken: Secret,
): Promise<void> {
  if (tokenFile !== undefined) await writeTokenFile(tokenFile, workerToken)
  if (proxyTokenFile !== undefined) await writeTokenFile(proxyTokenFile, proxyToken.reveal())
}

/** Replaces the file as a whole, so that a reader never sees a partial token. */
async function writeTokenFile(path: string, token: string): Promise<void> {
  const temporary = `${path}.${process.pid}`
  await writeFile(temporary, `${token}\n`, { mode: 0o600 })
  await rename(temporary, path)
}
