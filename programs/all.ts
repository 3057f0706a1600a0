/**
 * `npm start`: everything. Embedded PostgreSQL; platform, task manager and module proxy in this process; one worker as a
 * process of its own, joined over gRPC.
 */
import { join } from 'node:path'
import { COAP_SETTINGS, IDENTITY_SETTINGS, MQTT_SETTINGS, PROVISIONING_SETTINGS, SEALED_COLUMNS } from '#api/config.ts'
import { INFRASTRUCTURE_SETTINGS, startInfrastructure } from '#core/infrastructure/index.ts'
import { HTTP_SETTINGS } from '#core/http/settings.ts'
import { runProgram } from '#core/program/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sleep } from '#core/time.ts'
import { MANAGER_SETTINGS } from '#manager/config.ts'
import { PROXY_SETTINGS } from '#proxy/config.ts'
import type { Uploads } from '#proxy/index.ts'
import { WORKER_SETTINGS } from '#worker/identity/config.ts'
import { isolationNotices, renderBanner } from './start/banner.ts'
import { launchLocalWorker } from './start/local-worker.ts'
import { createProgress } from './start/progress.ts'

/** Connections of the pool; ingest, journal tail and run writer have their own. */
const MAX_CONNECTIONS = 16

/**
 * Loading the rooms keeps this process busy for as long as the database takes to start. So that both happen at once, the
 * database's process is given this long to be there first; a database that is made or is elsewhere needs no more.
 */
const MAX_SPAWN_MS = 40

/** This machine, as its own processes dial it. */
const HERE = '127.0.0.1:0'

/** A first start compiles everything; beyond this the banner appears without a worker. */
const JOIN_DEADLINE_MS = 20_000

const MANAGER_ACCESS = {
  auto: 'tasks of no domain need no token from this machine (SKEIN_MANAGER_AUTH=auto)',
  off: 'no token needed from anywhere (SKEIN_MANAGER_AUTH=off)',
  on: 'needs a token',
} as const

await runProgram({
  name: 'start',
  summary: 'Runs the whole product on one machine.',
  settings: {
    infrastructure: INFRASTRUCTURE_SETTINGS,
    http: HTTP_SETTINGS,
    identity: IDENTITY_SETTINGS,
    provisioning: PROVISIONING_SETTINGS,
    coap: COAP_SETTINGS,
    mqtt: MQTT_SETTINGS,
    manager: MANAGER_SETTINGS,
    proxy: PROXY_SETTINGS,
    worker: WORKER_SETTINGS,
  },
  ownPrefixes: ['SKEIN_', 'PROXY_'],
  async run(life, config, logger, environment) {
    const worker = launchLocalWorker({ environment, logger })
    const progress = createProgress(logger, process.stdout)
    const spawned = Promise.withResolvers<void>()
    const starting = startInfrastructure(life, {
      config: config.infrastructure,
      logger,
      kind: 'all',
      maxConnections: MAX_CONNECTIONS,
      onStep: progress.step,
      onServerSpawn: spawned.resolve,
      sealed: SEALED_COLUMNS,
    })
    // A failing start is reported below; until then nobody waits for it.
    starting.catch(() => undefined)
    await Promise.race([spawned.promise, sleep(MAX_SPAWN_MS)])
    const {
      SERVICE_PORTS,
      createMetrics,
      authModeOf,
      createTaskAccess,
      prepareGrpcTls,
      proxyTokenOf,
      reachableFrom,
      startTlsFiles,
      startApi,
      ...start
    } = await import('./start/rooms.ts')
    const infrastructure = await starting
    const { database, keyring, build } = infrastructure
    progress.step('starting the platform')
    const metrics = createMetrics()
    const { host, maxBodyBytes } = config.http
    const { coapPort } = config.coap
    const coap = coapPort === 0 ? undefined : { host, port: coapPort, maxBodyBytes }
    const api = await startApi(life, {
      infrastructure,
      config: config.identity,
      provisioning: config.provisioning,
      coap,
      mqtt: { config: config.mqtt, host, maxBodyBytes, files: await startTlsFiles(life, config.http, logger) },
      metrics,
    })
    const warning = api.provisioning.warningFor(host)
    if (warning !== undefined) logger.warn(warning)

    progress.step('starting the module proxy')
    const tls = await prepareGrpcTls(config.manager, database, keyring)
    const token = proxyTokenOf(config.manager.proxyToken, keyring)
    // The manager is told where the proxy is, so it starts behind it.
    const later: { readUpload?: Uploads } = {}
    const proxy = await life.start('module proxy', async () => {
      const uploads: Uploads = (digest, offset, signal) => {
        if (later.readUpload === undefined) throw new ServiceError('unavailable', 'the task manager is starting')
        return later.readUpload(digest, offset, signal)
      }
      const value = await start.startProxy({ config: config.proxy, logger, tls, token, uploads })
      return { value, stop: () => value.stop() }
    })

    progress.step('starting the task manager')
    const managerAuth = authModeOf(config.manager.auth, {
      trustProxy: config.http.trustProxy,
      publicUrl: config.identity.publicUrl,
    })
    const access = createTaskAccess({
      database,
      access: api.identity.access,
      authenticate: api.authenticate,
      mode: managerAuth,
      corsOrigins: config.http.corsOrigins,
    })
    const tokenFile = join(infrastructure.dataDir, 'worker-token')
    const manager = await life.start('task manager', async () => {
      const value = await start.startManager({
        // As this machine reaches it; a worker elsewhere finds it at the host at which it found the manager.
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

    later.readUpload = manager.readUpload

    // It joins while the ports are opened, and stops when they are closed: what was asked for over HTTP is done by then.
    await life.start('local worker', () => {
      worker.join(reachableFrom(manager.grpcAddress, HERE), manager.workerToken)
      return Promise.resolve({ value: worker, stop: () => worker.stop() })
    })

    progress.step('opening the ports')
    const servicePorts = config.http.servicePorts ? [...SERVICE_PORTS.keys()] : []
    const { listeners, scheme } = await start.startHttpServer(life, {
      config: config.http,
      logger,
      build,
      metrics,
      streams: infrastructure.streams,
      ports: [
        { port: config.http.httpPort, isOptional: false, setting: 'SKEIN_HTTP_PORT' },
        { port: config.manager.httpPort, isOptional: false, setting: 'SKEIN_MANAGER_HTTP_PORT' },
        ...(coapPort === 0 ? [] : [{ port: coapPort, isOptional: true, setting: 'SKEIN_COAP_PORT' }]),
        ...servicePorts.map((port) => ({ port, isOptional: true, setting: 'SKEIN_SERVICE_PORTS' })),
      ],
      serviceOf: (port) =>
        port === config.manager.httpPort
          ? 'manager'
          : port === coapPort
            ? 'coap'
            : (SERVICE_PORTS.get(port ?? 0) ?? 'skein'),
      authenticate: api.authenticate,
      tlsOf: api.provisioning.certificates.tlsOf,
      routes: [api.routes, manager.routes],
    })

    progress.step('joining the worker')
    const hasWorker = await manager.untilWorker(JOIN_DEADLINE_MS, life.signal)
    if (life.signal.aborted) return
    if (!hasWorker) logger.warn('the local worker has not joined yet; tasks wait for it')
    const isolation = hasWorker ? await worker.isolation() : undefined
    const at = (port: number | undefined) => `${scheme}://${reachableFrom(`${config.http.host}:${port}`, HERE)}`
    const mqttAt = (protocol: string, port: number | undefined) =>
      port === undefined ? [] : [`${protocol}://${reachableFrom(`${host}:${port}`, HERE)}`]
    const banner = renderBanner(
      {
        version: build.version,
        seconds: progress.done(),
        base: at(listeners.ports[0]),
        manager: at(listeners.ports[1]),
        mqtt: [...mqttAt('mqtt', api.mqtt?.port), ...mqttAt('mqtts', api.mqtt?.tlsPort)].join('  ') || undefined,
        coap: api.coapPort === undefined ? undefined : `coap://${reachableFrom(`${host}:${api.coapPort}`, HERE)}`,
        managerAccess: MANAGER_ACCESS[managerAuth],
        grpcAddress: manager.grpcAddress,
        tokenFile,
        proxyAddress: proxy.address,
        publicUrl: config.identity.publicUrl,
        databaseNote: infrastructure.databaseNote,
        takenPorts: listeners.taken,
        admin: api.identity.firstAdmin,
        notices: [...infrastructure.notices, ...isolationNotices(isolation)],
      },
      process.stdout.isTTY,
    )
    process.stdout.write(banner)
  },
})
