/**
 * `npm start`: runs everything. Embedded PostgreSQL; platform, task manager and module proxy in this process; one worker
 * as a process of its own, joined over gRPC. With several processes of the platform, this one supervises them.
 */
import { PROCESSES_SETTINGS, SEALED_COLUMNS } from '#api/config.ts'
import type { ConfigsOf, Environment } from '#core/config/index.ts'
import { startInfrastructure } from '#infrastructure/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { Supervisor } from '#infrastructure/processes/index.ts'
import { runProgram } from '#core/program/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import { sleep } from '#core/time.ts'
import { MANAGER_SETTINGS } from '#manager/config.ts'
import { PROXY_SETTINGS } from '#proxy/config.ts'
import { WORKER_SETTINGS } from '#worker/identity/config.ts'
import { apiProcessCount, launchApiProcesses } from './start/api-processes.ts'
import { API_SETTINGS } from './start/api-settings.ts'
import { renderBanner } from './start/banner.ts'
import { prepareConsole } from './start/console.ts'
import { launchLocalWorker } from './start/local-worker.ts'
import { createProgress } from './start/progress.ts'

/** Connections of the pool; ingest, the journal's reader and the run writer have their own. */
const MAX_CONNECTIONS = 16
/** Connections of the manager's pool if the platform has processes with pools of their own. */
const MANAGER_CONNECTIONS = 8

/**
 * Loading the rooms keeps this process busy for as long as the database takes to start. To overlap both, the process of
 * the database gets this head start; a database that is being created or is remote needs none.
 */
const MAX_SPAWN_MS = 40

/** A first start compiles everything; after this deadline the banner appears without a worker. */
const JOIN_DEADLINE_MS = 20_000

const hasCertificateFiles = (paths: { tlsCert: string | undefined; tlsKey: string | undefined }) =>
  paths.tlsCert !== undefined || paths.tlsKey !== undefined

const SETTINGS = {
  ...API_SETTINGS,
  processes: PROCESSES_SETTINGS,
  manager: MANAGER_SETTINGS,
  proxy: PROXY_SETTINGS,
  worker: WORKER_SETTINGS,
}
type Config = ConfigsOf<typeof SETTINGS>

const progress = createProgress(process.stdout)
await runProgram({
  name: 'start',
  summary: 'Runs all parts of Skein on one machine.',
  settings: SETTINGS,
  ownPrefixes: ['SKEIN_', 'PROXY_'],
  otherSettings: async () => (await import('./every-setting.ts')).EVERY_SETTING,
  progress,
  async run(life, config, logger, environment) {
    // The files are read before the database is started, so that a wrong path is reported at once.
    if (hasCertificateFiles(config.http) || hasCertificateFiles(config.manager)) {
      const { readTlsFiles, readGrpcTlsFiles } = await import('./start/everything.ts')
      await readTlsFiles(config.http)
      await readGrpcTlsFiles(config.manager)
    }
    const worker = launchLocalWorker({ environment, logger })
    const count = apiProcessCount(config, logger)
    const supervised = count === 1 ? undefined : await launchPlatform({ count, config, environment, logger })
    const starting = launchInfrastructure(life, config, logger, supervised?.supervisor)
    await starting.spawned
    const { bannerOf, startEverything } = await import('./start/everything.ts')
    const infrastructure = await starting.infrastructure
    // The console is built before anything is served, because a build takes half of a small machine.
    const consolePage = await prepareConsole({
      dataDir: infrastructure.dataDir,
      logger,
      signal: life.signal,
      onBuild: () => progress.step('building the console'),
    })
    const onStep = progress.step
    const options = { config, logger, infrastructure, onStep, worker, consolePage, supervised }
    const everything = await startEverything(life, options)
    progress.step('joining the worker')
    const hasWorker = await everything.manager.untilWorker(JOIN_DEADLINE_MS, life.signal)
    if (life.signal.aborted) return
    if (!hasWorker) logger.warn('the local worker has not joined yet; tasks stay pending until it does')
    const isolation = hasWorker ? await worker.isolation() : undefined
    const seconds = progress.done()
    const banner = bannerOf(config, { everything, infrastructure, isolation, seconds, processes: count })
    process.stdout.write(renderBanner(banner, process.stdout.isTTY))
    // Their log follows that of this process.
    life.onStarted(() => {
      worker.programStarted()
      supervised?.supervisor.programStarted()
    })
  },
})

type PlatformOptions = { count: number; config: Config; environment: Environment; logger: Logger }

/** Its processes load their code while the database starts. */
async function launchPlatform({ logger, ...options }: PlatformOptions) {
  const supervisor = new Supervisor(logger)
  return { supervisor, processes: await launchApiProcesses(supervisor, { ...options, showsProgress: true }) }
}

/** Starts the database. `spawned`: its process is there, or needs no head start. */
function launchInfrastructure(life: Lifecycle, config: Config, logger: Logger, supervisor: Supervisor | undefined) {
  const spawned = Promise.withResolvers<void>()
  const infrastructure = startInfrastructure(life, {
    config: config.infrastructure,
    logger,
    kind: 'all',
    maxConnections: supervisor === undefined ? MAX_CONNECTIONS : MANAGER_CONNECTIONS,
    machine: supervisor?.machine,
    onStep: progress.step,
    onServerSpawn: spawned.resolve,
    sealed: SEALED_COLUMNS,
  })
  // The failure is reported where this promise is awaited.
  infrastructure.catch(() => undefined)
  return { infrastructure, spawned: Promise.race([spawned.promise, sleep(MAX_SPAWN_MS)]) }
}
