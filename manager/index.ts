/**
 * The task manager: HTTP routes to register on the shared app, and the gRPC listener that workers dial into. It can be
 * hosted in the process of the API or run alone.
 */
import { randomUUID, X509Certificate } from 'node:crypto'
import { rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { hintQueue } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Streams } from '#core/streams/index.ts'
import { fingerprintOf } from '#proto/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import type { TaskAccess } from './access.ts'
import { createCallers } from './callers.ts'
import type { ManagerConfig } from './config.ts'
import { Cluster } from './dispatch/cluster.ts'
import { startDispatch } from './dispatch/server.ts'
import { createGuests, type ReadChannel } from './channels/guests.ts'
import { startMessageRuns } from './channels/message-runs.ts'
import { createReplaysService } from './channels/replay-service.ts'
import { replayRoutes } from './channels/routes.ts'
import { createEventsService, taskEventRoutes } from './events/index.ts'
import { prepareGrpcTls } from './grpc-tls.ts'
import type { GrpcTls } from './grpc-tls.ts'
import { ModuleCatalogue } from './modules/catalogue.ts'
import { createBodyReceiver, createModules } from './modules/index.ts'
import { createModuleRefs } from './modules/module-refs.ts'
import { createTicketOffice, proxyTokenOf } from './modules/tickets.ts'
import {
  KnownTasks,
  RunEndings,
  RunQueues,
  createRunOutput,
  createRunWriter,
  createRunsService,
  runRoutes,
} from './runs/index.ts'
import { startSweeper } from './runs/sweeper.ts'
import { createTasksService, taskRoutes } from './tasks/index.ts'
import { startScheduler } from './schedules/scheduler.ts'
import { openSecrets } from './tasks/extras.ts'
import { DEFAULT_TIMING, type ManagerTiming } from './timing.ts'
import { createWorkflowsService, startWorkflowEngine, workflowRoutes } from './workflows/index.ts'
import { createWorkersService, ensureJoinToken, startLeaseKeeper, workerRoutes } from './workers/index.ts'

export { MANAGER_SETTINGS } from './config.ts'
export { prepareGrpcTls } from './grpc-tls.ts'
export { proxyTokenOf } from './modules/tickets.ts'
export type { GrpcTls } from './grpc-tls.ts'
export type { ManagerConfig } from './config.ts'
export { authModeOf, createTaskAccess, isLocal } from './access.ts'
export type { AuthMode, TaskAccess, TaskAccessDeps, TaskAction, TaskCaller, TaskDomain } from './access.ts'
export { startTaskAccess } from './task-access.ts'
export type { OwnTaskAccess } from './task-access.ts'
export { DEFAULT_TIMING } from './timing.ts'
export type { ManagerTiming } from './timing.ts'
export { renderLifecycle } from './lifecycle.ts'

export type ManagerDeps = {
  config: ManagerConfig
  database: Database
  bus: Bus
  keyring: Keyring
  access: TaskAccess
  streams: Streams
  /** Where uploads lie until they are there whole. */
  dataDir: string
  logger: Logger
  /** Intervals that tests shorten; heartbeat and lease come from the settings unless given here. */
  timing?: Partial<ManagerTiming>
  /** Certificate of the gRPC listener where it was prepared before; otherwise as the settings say. */
  tls?: GrpcTls | undefined
  /** Where the join token is written for whoever joins a worker from elsewhere, readable by the owner alone. */
  tokenFile?: string
  /** Stored messages for guests that may read a channel; absent: such calls are told that nobody reads here. */
  readChannel?: ReadChannel | undefined
  /** Where a proxy that shares the data folder finds what managers name themselves by. */
  proxyTokenFile?: string
}

export type Manager = {
  /** To be registered on the HTTP app. */
  readonly routes: RoutePlugin
  /** host:port that workers dial. */
  readonly grpcAddress: string
  /** What a worker joins with: `<secret>`, or `<fingerprint of the certificate>.<secret>` where TLS is on. */
  readonly workerToken: string
  /** Workers whose session is here. */
  readonly workerCount: number
  /** Resolves with true once a worker has joined, with false at the deadline or when the signal comes. */
  untilWorker(deadlineMs: number, signal: AbortSignal): Promise<boolean>
  stop(): Promise<void>
}

/** How often a start looks whether its first worker is there. */
const JOIN_POLL_MS = 10

export async function startManager({
  config,
  database,
  bus,
  keyring,
  access,
  streams,
  dataDir,
  logger,
  timing: changed,
  tls: given,
  tokenFile,
  readChannel,
  proxyTokenFile,
}: ManagerDeps): Promise<Manager> {
  const tls = given ?? (await prepareGrpcTls(config, database, keyring))
  const timing: ManagerTiming = {
    ...DEFAULT_TIMING,
    heartbeatIntervalMs: config.heartbeatIntervalMs,
    minLeaseMs: config.minLeaseMs,
    ...changed,
  }
  const managerId = randomUUID()
  const stopping = new AbortController()
  const token = await ensureJoinToken(database, keyring, config.workerToken?.reveal())
  const proxyToken = proxyTokenOf(config.proxyToken, keyring)
  const tickets = createTicketOffice(proxyToken)
  const cluster = new Cluster({
    modules: createModuleRefs(config.proxyAddress, tickets),
    openSecrets: (taskId, sealed) => openSecrets(keyring, taskId, Buffer.from(sealed, 'base64')),
  })
  const endings = new RunEndings()
  const events = createEventsService({ database, access, logger })
  const queues = new RunQueues()
  const writer = createRunWriter({
    context: {
      managerId,
      cluster,
      queues,
      endings,
      modules: new ModuleCatalogue(),
      tasks: new KnownTasks(),
      timing,
      logger,
      random: Math.random,
      onCommitted: events.poke,
      onPublished: () => hintQueue(bus, 'task_publications'),
    },
    connect: () => database.dedicated('skein-run-writer'),
    signal: stopping.signal,
  })
  const output = createRunOutput({ database, logger })
  const leases = startLeaseKeeper({ database, cluster, writer, timing, managerId, logger })
  const sweeper = startSweeper({ database, writer, timing, keptRunsMs: config.keptRunsMs, logger })
  const { proxyAddress } = config
  const certificate = tls?.cert
  const bodies = createBodyReceiver({ folder: join(dataDir, 'uploads') })
  const modules = createModules({
    database,
    access,
    cluster,
    tickets,
    proxyAddress,
    proxyToken,
    certificate,
    bodies,
    logger,
  })
  const tasks = createTasksService({ database, access, keyring, newId: randomUUID, now: () => new Date() })
  const runs = createRunsService({
    database,
    tasks,
    writer,
    endings,
    timing,
    newId: randomUUID,
    resolveImage: modules.resolve,
    logger,
  })
  const messageRuns = startMessageRuns({ database, bus, access, runs, logger, intervalMs: timing.messageIntervalMs })
  const replays = createReplaysService({ database, bus, access, tasks, newId: randomUUID })
  const scheduler = startScheduler({ database, runs, logger, intervalMs: timing.sweepIntervalMs })
  const engine = startWorkflowEngine({ database, runs, logger, intervalMs: timing.sweepIntervalMs })
  endings.onEvery((ended) => engine.ended(ended.runId))
  const workflows = createWorkflowsService({ database, access, tasks, runs, engine, newId: randomUUID })
  const fingerprint = tls === undefined ? undefined : fingerprintOf(new X509Certificate(tls.cert))
  const workers = createWorkersService({ database, access, tasks, cluster, writer, newId: randomUUID, fingerprint })
  const callers = createCallers(access)

  async function stopParts(): Promise<void> {
    stopping.abort()
    await events.stop()
    await Promise.all([messageRuns.stop(), scheduler.stop(), engine.stop(), sweeper.stop()])
    await leases.stop()
    runs.close()
    modules.close()
    await output.close()
    await writer.close()
  }

  try {
    const dispatch = await startDispatch({
      cluster,
      writer,
      leases,
      tickets,
      output,
      guests: createGuests({ database, bus, access, readChannel }),
      logger,
      database,
      newId: randomUUID,
      managerId,
      host: config.host,
      port: config.grpcPort,
      tls,
    })
    const workerToken = fingerprint === undefined ? token : `${fingerprint}.${token}`
    if (tokenFile !== undefined) await writeTokenFile(tokenFile, workerToken)
    if (proxyTokenFile !== undefined) await writeTokenFile(proxyTokenFile, proxyToken.reveal())
    return {
      grpcAddress: dispatch.address,
      workerToken,
      get workerCount() {
        return cluster.size
      },
      async untilWorker(deadlineMs, signal) {
        const end = monotonicMs() + deadlineMs
        while (cluster.size === 0) {
          if (signal.aborted || monotonicMs() > end) return false
          await sleep(JOIN_POLL_MS, signal).catch(() => undefined)
        }
        return true
      },
      routes: async (app) => {
        await taskRoutes({ tasks, runs, callers, bodies })(app)
        await runRoutes({ runs, access, callers, streams })(app)
        await workerRoutes({ workers, callers })(app)
        await modules.routes(callers)(app)
        await workflowRoutes({ workflows, callers })(app)
        await replayRoutes({ replays, callers })(app)
        await taskEventRoutes({ events, access, callers, streams })(app)
      },
      async stop() {
        await dispatch.stop()
        await stopParts()
      },
    }
  } catch (error) {
    await stopParts()
    throw error
  }
}

/** Replaced as a whole, so that a reader never sees half a token. */
async function writeTokenFile(path: string, token: string): Promise<void> {
  const temporary = `${path}.${process.pid}`
  await writeFile(temporary, `${token}\n`, { mode: 0o600 })
  await rename(temporary, path)
}
