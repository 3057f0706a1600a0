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
import type { Logger } from '#core/logging/index.ts'
import type { Streams } from '#core/streams/index.ts'
import { fingerprintOf } from '#proto/index.ts'
import { hintPublications, type ReadChannel } from '#queues/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import type { TaskAccess } from './access/access.ts'
import { createCallers } from './access/callers.ts'
import type { ManagerConfig } from './config.ts'
import { Cluster } from './placement/cluster.ts'
import { startDispatch } from './dispatch/server.ts'
import { createGuests } from './channels/guests.ts'
import { startMessageRuns } from './channels/message-runs.ts'
import { createReplaysService } from './channels/replay-service.ts'
import { replayRoutes } from './channels/routes.ts'
import { createEventsService } from './events/service.ts'
import { taskEventRoutes } from './events/routes.ts'
import { prepareGrpcTls } from './tls/grpc-tls.ts'
import type { GrpcTls } from './tls/grpc-tls.ts'
import { ModuleCatalogue } from './store/catalogue.ts'
import { createBodyReceiver, createModules } from './modules/index.ts'
import { createModuleRefs } from './modules/module-refs.ts'
import { TicketIssuer, proxyTokenOf } from './modules/tickets.ts'
import { KnownTasks } from './writer/known-tasks.ts'
import { RunEndings } from './writer/endings.ts'
import { RunQueues } from './writer/queues.ts'
import { createRunOutput } from './dispatch/run-output.ts'
import { RunWriter } from './writer/writer.ts'
import { invokeRoutes } from './runs/invoke-routes.ts'
import { Invocations } from './runs/invocations.ts'
import { startLateEnds } from './runs/late-ends.ts'
import { RunsService } from './runs/service.ts'
import { startRoutes } from './runs/start-routes.ts'
import { RunStarter } from './runs/starter.ts'
import { runRoutes } from './runs/routes.ts'
import { startSweeper } from './writer/sweeper.ts'
import { stopTaskRuns } from './writer/stop-task.ts'
import { TasksService } from './tasks/service.ts'
import { taskRoutes } from './tasks/routes.ts'
import { startScheduler } from './schedules/scheduler.ts'
import { openSecrets } from './tasks/extras.ts'
import { DEFAULT_TIMING, type ManagerTiming } from './model/timing.ts'
import { WorkflowsService } from './workflows/service.ts'
import { WorkflowEngine } from './workflows/engine.ts'
import { workflowRoutes } from './workflows/routes.ts'
import { WorkersService } from './workers/service.ts'
import { ensureJoinToken } from './workers/tokens.ts'
import { LeaseKeeper } from './workers/leases.ts'
import { placementRoutes } from './workers/placement-routes.ts'
import { workerRoutes } from './workers/routes.ts'

export { MANAGER_SETTINGS } from './config.ts'
export { prepareGrpcTls } from './tls/grpc-tls.ts'
export { proxyTokenOf } from './modules/tickets.ts'
export type { GrpcTls } from './tls/grpc-tls.ts'
export type { ManagerConfig } from './config.ts'
export { authModeOf, createTaskAccess, isLocal } from './access/access.ts'
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
  /** The bytes of an upload, for a proxy of the same process. Throws `not_found`. */
  readUpload(digest: string, offset: number, signal: AbortSignal): AsyncIterable<Buffer>
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
  const tickets = new TicketIssuer(proxyToken)
  const cluster = new Cluster()
  const endings = new RunEndings()
  const events = createEventsService({ database, access, logger })
  const queues = new RunQueues()
  const knownTasks = new KnownTasks()
  const writer = new RunWriter({
    context: {
      managerId,
      cluster,
      queues,
      endings,
      modules: new ModuleCatalogue(),
      tasks: knownTasks,
      timing,
      logger,
      random: Math.random,
      onCommitted: events.poke,
      onPublished: () => hintPublications(bus),
    },
    connect: () => database.dedicated('skein-run-writer'),
    signal: stopping.signal,
  })
  const output = createRunOutput({ database, logger })
  const leases = new LeaseKeeper({ database, cluster, writer, timing, managerId, logger })
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
  const stopRuns = (taskKey: number) => stopTaskRuns({ writer, endings, timing }, taskKey)
  const tasks = new TasksService({
    database,
    access,
    keyring,
    stopRuns,
    onChanged: (taskId) => knownTasks.forget(taskId),
    newId: randomUUID,
    now: () => new Date(),
  })
  const starter = new RunStarter({ database, writer, knownTasks, resolveImage: modules.resolve })
  const runs = new RunsService({ database, tasks, starter, stopRuns, newId: randomUUID, logger })
  const invocations = new Invocations({ database, tasks, starter, endings, newId: randomUUID })
  const lateEnds = startLateEnds({ database, endings, logger, intervalMs: timing.foreignRunPollMs })
  const messageRuns = startMessageRuns({ database, bus, access, runs, logger, intervalMs: timing.messageIntervalMs })
  const replays = createReplaysService({ database, bus, access, tasks, newId: randomUUID })
  const scheduler = startScheduler({ database, runs, logger, intervalMs: timing.sweepIntervalMs })
  const engine = new WorkflowEngine({ database, runs, logger, intervalMs: timing.sweepIntervalMs })
  endings.onEvery((ended) => engine.ended(ended.runId))
  const workflows = new WorkflowsService({ database, access, tasks, runs, engine, newId: randomUUID })
  const fingerprint = tls === undefined ? undefined : fingerprintOf(new X509Certificate(tls.cert))
  const workers = new WorkersService({ database, access, cluster, writer, newId: randomUUID, fingerprint })
  const callers = createCallers(access)

  async function stopParts(): Promise<void> {
    stopping.abort()
    await events.stop()
    await Promise.all([messageRuns.stop(), scheduler.stop(), engine.stop(), sweeper.stop()])
    await leases.stop()
    runs.close()
    lateEnds.stop()
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
      delivery: {
        modules: createModuleRefs(config.proxyAddress, tickets),
        openSecrets: (taskId, sealed) => openSecrets(keyring, taskId, Buffer.from(sealed, 'base64')),
      },
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
      readUpload: modules.readUpload,
      async untilWorker(deadlineMs, signal) {
        const end = monotonicMs() + deadlineMs
        while (cluster.size === 0) {
          if (signal.aborted || monotonicMs() > end) return false
          await sleep(JOIN_POLL_MS, signal).catch(() => undefined)
        }
        return true
      },
      routes: async (app) => {
        await taskRoutes({ tasks, callers, bodies })(app)
        await startRoutes({ runs, callers })(app)
        await invokeRoutes({ invocations, callers })(app)
        await runRoutes({ runs, access, callers, streams })(app)
        await workerRoutes({ workers, callers })(app)
        await placementRoutes({ database, access, tasks, cluster, callers })(app)
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
