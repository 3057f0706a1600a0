/** The services of the task manager, created in the order of their dependencies, without the listener of workers. */
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { registerRouteRules, registerTrials } from '#api/identity/index.ts'
import type { Actor } from '#api/identity/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Secret } from '#core/config/index.ts'
import type { Database } from '#core/database/index.ts'
import type { HttpApp } from '#http/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Check } from '#core/readiness/index.ts'
import { monotonicMs } from '#core/time.ts'
import type { Streams } from '#core/streams/index.ts'
import { createMessageContents, hintCommandRuns, hintMessages, hintPublications } from '#queues/index.ts'
import type { MessageContents } from '#queues/index.ts'
import type { TaskAccess } from './access/access.ts'
import { createCallers } from './access/callers.ts'
import { startCommandRuns } from './commands/command-runs.ts'
import { startBatchRuns } from './channels/batch-runs.ts'
import { startMessageRuns } from './channels/message-runs.ts'
import { startRightsWatch } from './channels/rights-watch.ts'
import { letterRoutes } from './channels/letter-routes.ts'
import { LettersService } from './channels/letters-service.ts'
import { ReplaysService } from './channels/replay-service.ts'
import { replayRoutes } from './channels/routes.ts'
import type { ManagerConfig } from './config.ts'
import { createRunOutput } from './dispatch/run-output.ts'
import { taskEventRoutes } from './events/routes.ts'
import { EventsService } from './events/service.ts'
import type { ManagerTiming } from './model/timing.ts'
import { createBodyReceiver, createModules } from './modules/index.ts'
import { TicketIssuer } from './modules/tickets.ts'
import { Cluster } from './placement/cluster.ts'
import { WorkerMeasurements } from './placement/metrics.ts'
import { Invocations } from './runs/invocations.ts'
import { invokeRoutes } from './runs/invoke-routes.ts'
import { startEndPolling } from './runs/end-polling.ts'
import { runRoutes } from './runs/routes.ts'
import { taskMetricsRoute } from './runs/legacy-routes.ts'
import { RunsService } from './runs/service.ts'
import { startRoutes } from './runs/start-routes.ts'
import { startRuleCalls } from './rules/rule-calls.ts'
import { RunStarter } from './runs/starter.ts'
import { startOfflineKeeper } from './schedules/offline-keeper.ts'
import { startScheduler } from './schedules/scheduler.ts'
import { AmountQuotas } from './store/amount-quotas.ts'
import { ModuleCatalogue } from './store/catalogue.ts'
import { taskRoutes } from './tasks/routes.ts'
import { stateRoutes } from './state/routes.ts'
import { StateService } from './state/service.ts'
import { TasksService } from './tasks/service.ts'
import { TaskReader } from './tasks/task-reader.ts'
import { TaskWriter } from './tasks/task-writer.ts'
import { LeaseMonitor } from './workers/leases.ts'
import { explainUnfit } from './workers/placement.ts'
import { placementRoutes } from './workers/placement-routes.ts'
import { workerRoutes } from './workers/routes.ts'
import { propletRoutes } from './workers/legacy-routes.ts'
import { WorkersService } from './workers/service.ts'
import { WorkflowEngine } from './workflows/engine.ts'
import { workflowRoutes } from './workflows/routes.ts'
import { jobRoutes } from './workflows/legacy-routes.ts'
import { WorkflowsService } from './workflows/service.ts'
import { CountedQuota } from './writer/counted-quota.ts'
import { RunEndings } from './writer/endings.ts'
import { KnownTasks } from './writer/known-tasks.ts'
import { countEnd } from './writer/metrics.ts'
import { createOfflineRecorder } from './writer/offline-runs.ts'
import type { RecordOffline } from './writer/offline-runs.ts'
import { FairShares } from './writer/fair-shares.ts'
import { RunQueues } from './writer/queues.ts'
import { stopTaskRuns } from './writer/stop-task.ts'
import { startSweeper } from './writer/sweeper.ts'
import { RunWriter } from './writer/writer.ts'

/** A lost right that has returned continues its tasks after at most this many intervals of the sweeper. */
const RIGHTS_CHECK_SWEEPS = 10

export type ServicesDeps = {
  config: ManagerConfig
  managerId: string
  timing: ManagerTiming
  database: Database
  bus: Bus
  keyring: Keyring
  access: TaskAccess
  streams: Streams
  dataDir: string
  logger: Logger
  proxyToken: Secret
  /** Certificate of the gRPC listener and its SHA-256 fingerprint; absent without TLS. */
  tls: { certificate: Buffer; fingerprint: string } | undefined
}

export class ManagerServices {
  readonly cluster = new Cluster()
  readonly measurements = new WorkerMeasurements(this.cluster)
  readonly tickets: TicketIssuer
  readonly writer: RunWriter
  readonly leases: LeaseMonitor
  readonly recordOffline: RecordOffline
  readonly output: ReturnType<typeof createRunOutput>
  readonly contents: MessageContents
  readonly modules: ReturnType<typeof createModules>
  readonly #deps: ServicesDeps
  readonly #counted: { cpu: CountedQuota; bytes: CountedQuota }
  readonly #amounts: AmountQuotas
  readonly #bodies: ReturnType<typeof createBodyReceiver>
  readonly #events: EventsService
  readonly #tasks: TasksService
  readonly #runs: RunsService
  readonly #invocations: Invocations
  readonly #replays: ReplaysService
  readonly #letters: LettersService
  readonly #workflows: WorkflowsService
  readonly #workers: WorkersService
  readonly #stopLoops: () => Promise<void>
  readonly #stopping = new AbortController()

  constructor(deps: ServicesDeps) {
    const { config, managerId, timing, database, bus, keyring, access, dataDir, logger, proxyToken, tls } = deps
    const { cluster } = this
    const endings = new RunEndings()
    const knownTasks = new KnownTasks()
    const reader = new TaskReader({ database, cluster, logger })
    this.#deps = deps
    this.tickets = new TicketIssuer(proxyToken)
    this.#events = new EventsService({ database, access, logger })
    const counting = { database, quotas: access.quotas, managerId, logger }
    this.#counted = {
      cpu: new CountedQuota({ ...counting, name: 'cpu_seconds_per_day' }),
      bytes: new CountedQuota({ ...counting, name: 'run_bytes' }),
    }
    const amounts = new AmountQuotas({ database, quotas: access.quotas, logger })
    this.#amounts = amounts
    this.writer = new RunWriter({
      context: {
        managerId,
        cluster,
        queues: new RunQueues(),
        shares: new FairShares((domainId) =>
          domainId === null ? 1 : (access.quotas.ofDomainId(domainId, 'run_weight') ?? 1),
        ),
        quotas: access.quotas,
        counted: this.#counted,
        amounts,
        endings,
        modules: new ModuleCatalogue(),
        tasks: knownTasks,
        timing,
        beganMs: monotonicMs(),
        logger,
        random: Math.random,
        onTasksChanged: (keys) => reader.forget(keys),
        onCommitted: () => this.#events.wake(),
        onPublished: () => hintPublications(bus),
        onSettled: (refused) => batchRuns.settled(refused),
      },
      database,
      signal: this.#stopping.signal,
    })
    const { writer } = this
    this.recordOffline = createOfflineRecorder({
      database,
      counted: this.#counted,
      endings,
      onTasksChanged: (keys) => {
        reader.forget(keys)
        this.#events.wake()
      },
    })
    this.output = createRunOutput({ database, logger, bytes: this.#counted.bytes })
    this.contents = createMessageContents(database.db)
    const { contents } = this
    this.leases = new LeaseMonitor({ database, cluster, writer, timing, managerId, logger })
    const sweeper = startSweeper({ database, writer, timing, keptRunsMs: config.keptRunsMs, logger })
    this.#bodies = createBodyReceiver({ folder: join(dataDir, 'uploads') })
    this.modules = createModules({
      database,
      access,
      cluster,
      tickets: this.tickets,
      proxyAddress: config.proxyAddress,
      proxyToken,
      certificate: tls?.certificate,
      bodies: this.#bodies,
      logger,
    })
    const stopRuns = (taskKey: number, recordedFor?: Actor) =>
      stopTaskRuns({ writer, endings, timing }, { taskKey, recordedFor })
    const tasks = new TasksService({
      database,
      access,
      keyring,
      endings,
      reader,
      writer: new TaskWriter({ database, logger }),
      amounts,
      stopRuns,
      onChanged: (taskId) => knownTasks.invalidate(taskId),
      onReleased: () => {
        hintMessages(bus)
        hintPublications(bus)
        hintCommandRuns(bus)
      },
      newId: randomUUID,
      now: () => new Date(),
    })
    this.#tasks = tasks
    const starter = new RunStarter({ writer, knownTasks, resolveImage: this.modules.resolve })
    const runs = new RunsService({ database, access, tasks, starter, stopRuns, newId: randomUUID, logger })
    this.#runs = runs
    this.#invocations = new Invocations({
      database,
      tasks,
      starter,
      endings,
      explainUnfit: (caller, taskId) =>
        explainUnfit({ database, access, tasks, cluster: this.cluster }, caller, taskId),
      newId: randomUUID,
    })
    const lateEnds = startEndPolling({ database, endings, logger, intervalMs: timing.foreignRunPollMs })
    const messageRuns = startMessageRuns({
      database,
      bus,
      access,
      runs,
      contents,
      logger,
      intervalMs: timing.messageIntervalMs,
    })
    const batchRuns = startBatchRuns({
      database,
      bus,
      access,
      runs,
      contents,
      newId: randomUUID,
      logger,
      intervalMs: timing.messageIntervalMs,
    })
    const commandRuns = startCommandRuns({
      database,
      bus,
      access,
      runs,
      stopRun: async (taskKey, runId) => void (await writer.stop({ taskKey, runId, recordedFor: undefined })),
      endings,
      logger,
      intervalMs: timing.messageIntervalMs,
    })
    const ruleCalls = startRuleCalls({
      database,
      bus,
      runs,
      endings,
      logger,
      intervalMs: timing.messageIntervalMs,
    })
    const rightsWatch = startRightsWatch({
      database,
      bus,
      access,
      logger,
      intervalMs: RIGHTS_CHECK_SWEEPS * timing.sweepIntervalMs,
    })
    this.#letters = new LettersService({ database, bus, access, tasks })
    this.#replays = new ReplaysService({ database, bus, access, tasks, newId: randomUUID })
    const scheduler = startScheduler({ database, runs, logger, intervalMs: timing.sweepIntervalMs })
    const offlineKeeper = startOfflineKeeper({
      database,
      cluster,
      resolveImage: this.modules.resolve,
      logger,
      intervalMs: timing.sweepIntervalMs,
    })
    const engine = new WorkflowEngine({ database, runs, logger, intervalMs: timing.sweepIntervalMs })
    endings.onEvery((ended) => engine.ended(ended.runId))
    endings.onEvery(countEnd)
    this.#workflows = new WorkflowsService({ database, access, tasks, runs, engine, amounts, newId: randomUUID })
    const fingerprint = tls?.fingerprint
    this.#workers = new WorkersService({ database, access, cluster, writer, newId: randomUUID, fingerprint })
    this.#stopLoops = async () => {
      await Promise.all([
        messageRuns.stop(),
        batchRuns.stop(),
        commandRuns.stop(),
        ruleCalls.stop(),
        rightsWatch.stop(),
        scheduler.stop(),
        offlineKeeper.stop(),
        engine.stop(),
        sweeper.stop(),
      ])
      await this.leases.stop()
      lateEnds.stop()
    }
  }

  get checks(): readonly Check[] {
    return [
      this.modules.check,
      {
        name: 'workers',
        isRequired: false,
        read: () =>
          this.cluster.size === 0 ? 'no worker is connected to this task manager: its runs wait' : undefined,
      },
    ]
  }

  async routes(app: HttpApp): Promise<void> {
    const { access, database, streams } = this.#deps
    const callers = createCallers(access)
    registerRouteRules(app)
    registerTrials(app)
    await taskRoutes({ tasks: this.#tasks, callers, bodies: this.#bodies })(app)
    await stateRoutes({ state: new StateService({ database, tasks: this.#tasks, amounts: this.#amounts }), callers })(
      app,
    )
    await startRoutes({ runs: this.#runs, callers })(app)
    await invokeRoutes({ invocations: this.#invocations, callers })(app)
    await runRoutes({ runs: this.#runs, access, callers, streams })(app)
    await taskMetricsRoute({ runs: this.#runs, callers })(app)
    await workerRoutes({ workers: this.#workers, callers })(app)
    await propletRoutes({ workers: this.#workers, callers })(app)
    const placement = { database, access, tasks: this.#tasks, cluster: this.cluster, counted: this.#counted }
    await placementRoutes({ ...placement, callers })(app)
    await this.modules.routes(callers)(app)
    await workflowRoutes({ workflows: this.#workflows, callers })(app)
    await jobRoutes({ workflows: this.#workflows, callers })(app)
    await replayRoutes({ replays: this.#replays, callers })(app)
    await letterRoutes({ letters: this.#letters, callers })(app)
    await taskEventRoutes({ events: this.#events, access, callers, streams })(app)
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#events.stop()
    await this.#stopLoops()
    this.#runs.close()
    await this.modules.close()
    this.measurements.stop()
    await this.output.close()
    await this.writer.close()
    await Promise.all([this.#counted.cpu.stop(), this.#counted.bytes.stop()])
  }
}
