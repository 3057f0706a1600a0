/**
 * `npm start`: runs everything. Embedded PostgreSQL; platform, task manager and module proxy in this process; one worker
 * as a process of its own, joined over gRPC. With several processes of the platform, this one supervises them.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PROCESSES_SETTINGS, SEALED_COLUMNS } from '#api/config.ts'
import { startInfrastructure } from '#core/infrastructure/index.ts'
import { SUPERVISOR, Supervisor } from '#core/processes/index.ts'
import { runProgram } from '#core/program/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import { startReadiness } from '#core/readiness/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sleep } from '#core/time.ts'
import { MANAGER_SETTINGS } from '#manager/config.ts'
import { PROXY_SETTINGS } from '#proxy/config.ts'
import type { Uploads } from '#proxy/index.ts'
import { WORKER_SETTINGS } from '#worker/identity/config.ts'
import { apiPorts, serviceOfPort } from './start/api-ports.ts'
import { apiProcessCount, launchApiProcesses } from './start/api-processes.ts'
import { API_SETTINGS, connectOf } from './start/api-settings.ts'
import { isolationNotices, renderBanner } from './start/banner.ts'
import { consoleRoutes, prepareConsole } from './start/console.ts'
import { launchLocalWorker } from './start/local-worker.ts'
import { createProgress } from './start/progress.ts'

/** Connections of the pool; ingest, the journal's reader and the run writer have their own. */
const MAX_CONNECTIONS = 16
/** Where the platform has processes with pools of their own. */
const MANAGER_CONNECTIONS = 8

/**
 * Loading the rooms keeps this process busy for as long as the database takes to start. To overlap both, the process of
 * the database gets this head start; a database that is being created or is remote needs none.
 */
const MAX_SPAWN_MS = 40

/** This machine, as its own processes reach it. */
const HERE = '127.0.0.1:0'

/** A first start compiles everything; after this deadline the banner appears without a worker. */
const JOIN_DEADLINE_MS = 20_000

const MANAGER_ACCESS = {
  auto: 'requests from this machine need no token for tasks of no domain (SKEIN_MANAGER_AUTH=auto)',
  off: 'requires no token (SKEIN_MANAGER_AUTH=off)',
  on: 'requires a token',
} as const

const hasCertificateFiles = (paths: { tlsCert: string | undefined; tlsKey: string | undefined }) =>
  paths.tlsCert !== undefined || paths.tlsKey !== undefined

/** Where the processes of the platform pass on what this process answers: a folder that only our user can open. */
async function startPrivateFolder(life: Lifecycle): Promise<{ socketPath: string }> {
  return await life.start('private folder', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'skein-'))
    const stop = () => rm(folder, { recursive: true, force: true })
    return { value: { socketPath: join(folder, 'requests') }, stop }
  })
}

const progress = createProgress(process.stdout)
await runProgram({
  name: 'start',
  summary: 'Runs all parts of Skein on one machine.',
  settings: {
    ...API_SETTINGS,
    processes: PROCESSES_SETTINGS,
    manager: MANAGER_SETTINGS,
    proxy: PROXY_SETTINGS,
    worker: WORKER_SETTINGS,
  },
  ownPrefixes: ['SKEIN_', 'PROXY_'],
  otherSettings: async () => (await import('./every-setting.ts')).EVERY_SETTING,
  progress,
  async run(life, config, logger, environment) {
    // Before the database: a path that is wrong is said at once.
    if (hasCertificateFiles(config.http) || hasCertificateFiles(config.manager)) {
      const { readTlsFiles, readGrpcTlsFiles } = await import('./start/rooms.ts')
      await readTlsFiles(config.http)
      await readGrpcTlsFiles(config.manager)
    }
    const worker = launchLocalWorker({ environment, logger })
    const count = apiProcessCount(config, logger)
    const supervisor = count === 1 ? undefined : new Supervisor(logger)
    // They load their code while the database starts.
    const processes =
      supervisor && (await launchApiProcesses(supervisor, { count, config, environment, showsProgress: true }))
    const spawned = Promise.withResolvers<void>()
    const starting = startInfrastructure(life, {
      config: config.infrastructure,
      logger,
      kind: 'all',
      maxConnections: supervisor === undefined ? MAX_CONNECTIONS : MANAGER_CONNECTIONS,
      machine: supervisor?.machine,
      onStep: progress.step,
      onServerSpawn: spawned.resolve,
      sealed: SEALED_COLUMNS,
    })
    // The failure is reported below, where this promise is awaited.
    starting.catch(() => undefined)
    await Promise.race([spawned.promise, sleep(MAX_SPAWN_MS)])
    const {
      collectRoutes,
      createMetrics,
      effectiveAuthMode,
      createTaskAccess,
      startTaskAccess,
      prepareGrpcTls,
      proxyTokenOf,
      reachableFrom,
      startApi,
      startTlsFiles,
      ...start
    } = await import('./start/rooms.ts')
    const infrastructure = await starting
    // Before anything is served: a build takes half of a small machine.
    const consolePage = await prepareConsole({
      dataDir: infrastructure.dataDir,
      logger,
      signal: life.signal,
      onBuild: () => progress.step('building the console'),
    })
    const files = await startTlsFiles(life, config.http, logger)
    const { database, keyring, build } = infrastructure
    const metrics = createMetrics(
      [
        ...start.INFRASTRUCTURE_METRICS,
        ...start.API_METRICS,
        ...start.MANAGER_METRICS,
        ...start.PROXY_METRICS,
        start.PROCESS_METRICS.set,
      ],
      supervisor === undefined ? undefined : SUPERVISOR,
    )
    const { host, maxBodyBytes, trustProxy } = config.http
    const { coapPort } = config.coap
    const startPlatform = async () => {
      progress.step('starting the platform')
      const coap = coapPort === 0 ? undefined : { host, port: coapPort, maxBodyBytes }
      const value = await startApi(life, {
        infrastructure,
        config: config.identity,
        provisioning: config.provisioning,
        coap,
        mqtt: { config: config.mqtt, host, trustProxy, maxBodyBytes, files },
        connect: connectOf(config),
        metrics,
      })
      const warning = value.provisioning.warningFor(host)
      if (warning !== undefined) logger.warn(warning)
      return value
    }
    // Without it, its processes serve the platform.
    const api = supervisor === undefined ? await startPlatform() : undefined

    progress.step('starting the module proxy')
    const tls = await prepareGrpcTls(config.manager, database, keyring)
    const token = proxyTokenOf(config.manager.proxyToken, keyring)
    // The manager needs the address of the proxy, so it starts after it.
    const later: { readUpload?: Uploads } = {}
    // Its own port answers for the proxy alone.
    const readiness = await startReadiness(life, logger)
    const proxy = await life.start('module proxy', async () => {
      const uploads: Uploads = (digest, offset, signal) => {
        if (later.readUpload === undefined) throw new ServiceError('unavailable', 'the task manager is starting')
        return later.readUpload(digest, offset, signal)
      }
      const value = await start.startProxy({ config: config.proxy, logger, readiness, tls, token, uploads, metrics })
      return { value, stop: () => value.stop() }
    })

    progress.step('starting the task manager')
    const managerAuth = effectiveAuthMode(config.manager.auth, {
      trustProxy: config.http.trustProxy,
      publicUrl: config.identity.publicUrl,
    })
    const { corsOrigins } = config.http
    const { access, authenticate, firstAdmin } =
      api === undefined
        ? await life.start('identity', async () => {
            const own = { infrastructure, config: config.identity, mode: managerAuth, corsOrigins }
            const value = await startTaskAccess(own)
            return { value, stop: () => value.stop() }
          })
        : {
            authenticate: api.authenticate,
            firstAdmin: api.identity.firstAdmin,
            access: createTaskAccess({
              database,
              access: api.identity.access,
              quotas: api.identity.quotas,
              authenticate: api.authenticate,
              mode: managerAuth,
              corsOrigins,
            }),
          }
    const tokenFile = join(infrastructure.dataDir, 'worker-token')
    const manager = await life.start('task manager', async () => {
      const value = await start.startManager({
        // The address on this machine; a remote worker uses the host of the manager instead.
        config: { ...config.manager, proxyAddress: reachableFrom(proxy.address, HERE) },
        database,
        bus: infrastructure.bus,
        keyring,
        access,
        streams: infrastructure.streams,
        dataDir: infrastructure.dataDir,
        logger,
        tls,
        tokenFile,
        readChannel: start.createChannelReader(database),
      })
      return { value, stop: () => value.stop() }
    })

    infrastructure.readiness.add(...manager.checks)
    later.readUpload = manager.readUpload
    await start.startGaugeCollection(life, infrastructure, [
      ...start.apiGauges(database),
      ...start.managerGauges(database),
    ])

    // It joins while the ports are being opened and stops when they are closed: all HTTP requests are finished by then.
    await life.start('local worker', () => {
      worker.join(reachableFrom(manager.grpcAddress, HERE), manager.workerToken)
      return Promise.resolve({ value: worker, stop: () => worker.stop() })
    })

    progress.step('opening the ports')
    const managerPort = { port: config.manager.httpPort, isOptional: false, setting: 'SKEIN_MANAGER_HTTP_PORT' }
    const [base, ...others] = apiPorts(config)
    // One port for both settings belongs to the processes of the platform, which pass requests for the task manager on.
    const isOnePort = config.manager.httpPort !== 0 && config.manager.httpPort === config.http.httpPort
    const withProcesses = isOnePort ? [] : [managerPort]
    const ownPorts = api === undefined || base === undefined ? withProcesses : [base, managerPort, ...others]
    const serviceOf = serviceOfPort(coapPort, 'skein')
    const elsewhere = supervisor === undefined ? undefined : await startPrivateFolder(life)
    const collected = collectRoutes()
    const { app, scheme, listen } = await start.createHttpServer(life, {
      config: config.http,
      logger,
      build,
      metrics,
      readiness: infrastructure.readiness,
      whole: await supervisor?.whole(life, { readiness: infrastructure.readiness, registry: metrics.registry }),
      streams: infrastructure.streams,
      keyring,
      files,
      ports: ownPorts,
      privateSocket: elsewhere?.socketPath,
      serviceOf: (port) => (port === config.manager.httpPort ? 'manager' : serviceOf(port)),
      authenticate,
      newerUrl: api?.newerUrl,
      ...(api === undefined ? {} : { tlsOf: api.provisioning.certificates.tlsOf }),
      routes: [
        ...(api === undefined ? [] : [api.routes, consoleRoutes(consolePage)]),
        collected.plugin,
        manager.routes,
      ],
    })
    // Everything behind the ports can answer. HTTP comes last: a node whose `/ready` answers serves devices too.
    const devicePorts = await api?.listen()
    const listeners = await listen()
    const served = await serve()

    async function serve() {
      if (api !== undefined) {
        const [basePort, managerHttpPort] = listeners.ports
        return { basePort, managerHttpPort, ...devicePorts, takenPorts: listeners.taken }
      }
      if (supervisor === undefined || processes === undefined || elsewhere === undefined) throw new Error('no platform')
      const document = (await app.inject('/openapi.json')).json<object>()
      await supervisor.attach(life)
      const facts = await processes.serve({
        embedded: infrastructure.embedded,
        elsewhere: { ...elsewhere, routes: collected.routes, document },
        hasReadings: false,
        consolePage,
      })
      return { ...facts, basePort: facts.ports[0], managerHttpPort: listeners.ports[0] ?? facts.ports[0] }
    }

    progress.step('joining the worker')
    const hasWorker = await manager.untilWorker(JOIN_DEADLINE_MS, life.signal)
    if (life.signal.aborted) return
    if (!hasWorker) logger.warn('the local worker has not joined yet; tasks stay pending until it does')
    const isolation = hasWorker ? await worker.isolation() : undefined
    const at = (port: number | undefined) => `${scheme}://${reachableFrom(`${config.http.host}:${port}`, HERE)}`
    const mqttAt = (protocol: string, port: number | undefined) =>
      port === undefined ? [] : [`${protocol}://${reachableFrom(`${host}:${port}`, HERE)}`]
    const banner = renderBanner(
      {
        version: build.version,
        seconds: progress.done(),
        base: at(served.basePort),
        manager: at(served.managerHttpPort),
        processes: count,
        mqtt:
          config.connect.mqttPublicUrl ??
          ([...mqttAt('mqtt', served.mqttPort), ...mqttAt('mqtts', served.mqttsPort)].join('  ') || undefined),
        coap:
          config.connect.coapPublicUrl ??
          (served.coapPort === undefined ? undefined : `coap://${reachableFrom(`${host}:${served.coapPort}`, HERE)}`),
        managerAccess: MANAGER_ACCESS[managerAuth],
        grpcAddress: config.connect.grpcPublicAddress ?? manager.grpcAddress,
        tokenFile,
        proxyAddress: proxy.address,
        publicUrl: config.identity.publicUrl,
        databaseNote: infrastructure.databaseNote,
        takenPorts: served.takenPorts,
        admin: firstAdmin,
        notices: [...infrastructure.notices, ...isolationNotices(isolation)],
      },
      process.stdout.isTTY,
    )
    process.stdout.write(banner)
    // Their log follows that of this process.
    life.onStarted(() => {
      worker.programStarted()
      supervisor?.programStarted()
    })
  },
})
