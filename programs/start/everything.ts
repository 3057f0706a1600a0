/**
 * The parts of `npm start` behind the database, in the order in which they start. Loaded while the database starts, because loading them
 * takes as long.
 */
import { join } from 'node:path'
import { API_METRICS, apiGauges, createChannelReader, startApi } from '#api/index.ts'
import type { Api } from '#api/index.ts'
import type { ConfigsOf } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { INFRASTRUCTURE_METRICS, startGaugeCollection } from '#infrastructure/index.ts'
import type { Infrastructure } from '#infrastructure/index.ts'
import { collectRoutes, createHttpServer, createMetrics, startTlsFiles } from '#http/index.ts'
import type { Metrics } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { PROCESS_METRICS, SUPERVISOR } from '#infrastructure/processes/index.ts'
import type { Supervisor } from '#infrastructure/processes/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import { startReadiness } from '#core/readiness/index.ts'
import {
  MANAGER_METRICS,
  createTaskAccess,
  effectiveAuthMode,
  managerGauges,
  prepareGrpcTls,
  proxyTokenOf,
  startManager,
  startTaskAccess,
} from '#manager/index.ts'
import type { MANAGER_SETTINGS } from '#manager/config.ts'
import { reachableFrom } from '#proto/index.ts'
import { PROXY_METRICS, startProxy } from '#proxy/index.ts'
import type { Uploads } from '#proxy/index.ts'
import type { PROXY_SETTINGS } from '#proxy/config.ts'
import { connectOf } from './api-settings.ts'
import type { API_SETTINGS } from './api-settings.ts'
import { apiPorts, serviceOfPort } from './api-ports.ts'
import type { ApiProcesses } from './api-processes.ts'
import { consoleRoutes } from './console.ts'
import type { ConsolePage } from './console.ts'
import type { LocalWorker } from './local-worker.ts'
import { HERE, startPrivateFolder } from './places.ts'

export { bannerOf } from './banner-facts.ts'
export { readTlsFiles } from '#http/index.ts'
export { readGrpcTlsFiles } from '#manager/index.ts'

type Config = ConfigsOf<typeof API_SETTINGS & { manager: typeof MANAGER_SETTINGS; proxy: typeof PROXY_SETTINGS }>

export type StartOptions = {
  config: Config
  logger: Logger
  infrastructure: Infrastructure
  onStep: (step: string) => void
  worker: LocalWorker
  consolePage: ConsolePage
  /** Present if several processes serve the platform. This process supervises them. */
  supervised?: { supervisor: Supervisor; processes: ApiProcesses } | undefined
}

/** What every part is given. */
type Common = StartOptions & {
  life: Lifecycle
  metrics: Metrics
  files: Awaited<ReturnType<typeof startTlsFiles>>
}

/** What the banner tells. */
export type Everything = Awaited<ReturnType<typeof startEverything>>

export async function startEverything(life: Lifecycle, options: StartOptions) {
  const { config, logger, infrastructure, onStep, worker, supervised } = options
  const files = await startTlsFiles(life, config.http, logger)
  const metrics = createMetrics(
    [...INFRASTRUCTURE_METRICS, ...API_METRICS, ...MANAGER_METRICS, ...PROXY_METRICS, PROCESS_METRICS.set],
    supervised === undefined ? undefined : SUPERVISOR,
  )
  const common: Common = { ...options, life, metrics, files }
  const { database } = infrastructure
  // If there is a supervisor, its processes serve the platform.
  const api = supervised === undefined ? await startPlatform(common) : undefined
  onStep('starting the module proxy')
  const tls = await prepareGrpcTls(config.manager, database, infrastructure.keyring)
  const proxy = await startModuleProxy(common, tls)
  onStep('starting the task manager')
  const { manager, managerAuth, tokenFile, ...identity } = await startTaskManager(common, { api, tls, proxy })
  await startGaugeCollection(life, infrastructure, [...apiGauges(database), ...managerGauges(database)])
  // It joins while the ports are being opened and stops when they are closed: all HTTP requests are finished by then.
  await life.start('local worker', () => {
    worker.join(reachableFrom(manager.grpcAddress, HERE), manager.workerToken)
    return Promise.resolve({ value: worker, stop: () => worker.stop() })
  })
  onStep('opening the ports')
  const served = await openPorts(common, { api, manager, authenticate: identity.authenticate })
  return { ...served, manager, managerAuth, tokenFile, firstAdmin: identity.firstAdmin, proxyAddress: proxy.address }
}

async function startPlatform({ life, config, logger, infrastructure, onStep, metrics, files }: Common): Promise<Api> {
  onStep('starting the platform')
  const { host, maxBodyBytes, trustProxy } = config.http
  const { coapPort } = config.coap
  const api = await startApi(life, {
    infrastructure,
    config: config.identity,
    provisioning: config.provisioning,
    rules: config.rules,
    archive: config.archive,
    coap: coapPort === 0 ? undefined : { host, port: coapPort, maxBodyBytes },
    mqtt: { config: config.mqtt, host, trustProxy, maxBodyBytes, files },
    connect: connectOf(config),
    metrics,
  })
  const warning = api.provisioning.warningFor(host)
  if (warning !== undefined) logger.warn(warning)
  return api
}

type GrpcTls = Awaited<ReturnType<typeof prepareGrpcTls>>
type ModuleProxy = { address: string; readFrom: (uploads: Uploads) => void }

/** The manager needs its address, so that it starts first and gets the uploads of the manager later. */
async function startModuleProxy(
  { life, config, logger, infrastructure, metrics }: Common,
  tls: GrpcTls,
): Promise<ModuleProxy> {
  let readUpload: Uploads | undefined
  const uploads: Uploads = (digest, offset, signal) => {
    if (readUpload === undefined) throw new ServiceError('unavailable', 'the task manager is starting')
    return readUpload(digest, offset, signal)
  }
  const token = proxyTokenOf(config.manager.proxyToken, infrastructure.keyring)
  // Its own port answers for the proxy alone.
  const readiness = await startReadiness(life, logger)
  const { address } = await life.start('module proxy', async () => {
    const value = await startProxy({ config: config.proxy, logger, readiness, tls, token, uploads, metrics })
    return { value, stop: () => value.stop() }
  })
  return { address, readFrom: (given) => void (readUpload = given) }
}

type ManagerParts = { api: Api | undefined; tls: GrpcTls; proxy: ModuleProxy }

async function startTaskManager(common: Common, { api, tls, proxy }: ManagerParts) {
  const { life, config, logger, infrastructure } = common
  const { database, bus, keyring, streams, dataDir } = infrastructure
  const managerAuth = effectiveAuthMode(config.manager.auth, {
    trustProxy: config.http.trustProxy,
    publicUrl: config.identity.publicUrl,
  })
  const { access, authenticate, firstAdmin } = await startAccess(common, api, managerAuth)
  const tokenFile = join(dataDir, 'worker-token')
  const manager = await life.start('task manager', async () => {
    const value = await startManager({
      // The address on this machine; a remote worker uses the host of the manager instead.
      config: { ...config.manager, proxyAddress: reachableFrom(proxy.address, HERE) },
      database,
      bus,
      keyring,
      access,
      streams,
      dataDir,
      logger,
      tls,
      tokenFile,
      readChannel: createChannelReader(database),
    })
    return { value, stop: () => value.stop() }
  })
  infrastructure.readiness.add(...manager.checks)
  proxy.readFrom(manager.readUpload)
  return { manager, managerAuth, tokenFile, authenticate, firstAdmin }
}

/** Starts what decides who may do what with tasks: the platform of this process, or an identity service of its own. */
async function startAccess(
  { life, config, infrastructure }: Common,
  api: Api | undefined,
  mode: ReturnType<typeof effectiveAuthMode>,
) {
  const { corsOrigins } = config.http
  if (api === undefined)
    return await life.start('identity', async () => {
      const value = await startTaskAccess({ infrastructure, config: config.identity, mode, corsOrigins })
      return { value, stop: () => value.stop() }
    })
  const { authenticate, identity } = api
  const { access, quotas, firstAdmin } = identity
  const { database } = infrastructure
  return {
    authenticate,
    firstAdmin,
    access: createTaskAccess({ database, access, quotas, authenticate, mode, corsOrigins }),
  }
}

type Served = {
  api: Api | undefined
  manager: Awaited<ReturnType<typeof startManager>>
  authenticate: Api['authenticate']
}

async function openPorts(common: Common, { api, manager, authenticate }: Served) {
  const { life, config, logger, infrastructure, metrics, files, consolePage, supervised } = common
  const { readiness, streams, keyring, build } = infrastructure
  const elsewhere = supervised === undefined ? undefined : await startPrivateFolder(life)
  const serviceOf = serviceOfPort(config.coap.coapPort, 'skein')
  const collected = collectRoutes()
  const { app, scheme, listen } = await createHttpServer(life, {
    config: config.http,
    logger,
    build,
    metrics,
    readiness,
    whole: await supervised?.supervisor.whole(life, { readiness, registry: metrics.registry }),
    streams,
    keyring,
    files,
    ports: portsOf(config, api !== undefined),
    privateSocket: elsewhere?.socketPath,
    serviceOf: (port) => (port === config.manager.httpPort ? 'manager' : serviceOf(port)),
    authenticate,
    newerUrl: api?.newerUrl,
    ...(api === undefined ? {} : { tlsOf: api.provisioning.certificates.tlsOf }),
    routes: [...(api === undefined ? [] : [api.routes, consoleRoutes(consolePage)]), collected.plugin, manager.routes],
  })
  // Everything behind the ports can answer. HTTP comes last: a node whose `/ready` answers serves devices too.
  const devicePorts = await api?.listen()
  const listeners = await listen()
  if (supervised === undefined || elsewhere === undefined) {
    const [basePort, managerHttpPort] = listeners.ports
    return { scheme, basePort, managerHttpPort, ...devicePorts, takenPorts: listeners.taken }
  }
  const document = (await app.inject('/openapi.json')).json<object>()
  await supervised.supervisor.attach(life)
  const facts = await supervised.processes.serve({
    embedded: infrastructure.embedded,
    elsewhere: { ...elsewhere, routes: collected.routes, document },
    hasReadings: false,
    consolePage,
  })
  return { ...facts, scheme, basePort: facts.ports[0], managerHttpPort: listeners.ports[0] ?? facts.ports[0] }
}

/** The ports of this process. */
function portsOf(config: Config, servesPlatform: boolean) {
  const managerPort = { port: config.manager.httpPort, isOptional: false, setting: 'SKEIN_MANAGER_HTTP_PORT' }
  const [base, ...others] = apiPorts(config)
  if (servesPlatform && base !== undefined) return [base, managerPort, ...others]
  // One port for both settings belongs to the processes of the platform, which pass requests for the task manager on.
  const isOnePort = config.manager.httpPort !== 0 && config.manager.httpPort === config.http.httpPort
  return isOnePort ? [] : [managerPort]
}
