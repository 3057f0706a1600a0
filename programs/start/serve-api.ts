/** The platform as one process: alone, or as one of several that share its ports. */
import { API_METRICS, apiGauges, startApi } from '#api/index.ts'
import { SEALED_COLUMNS } from '#api/config.ts'
import type { ConfigsOf } from '#core/config/index.ts'
import { INFRASTRUCTURE_METRICS, startInfrastructure, startGaugeCollection } from '#infrastructure/index.ts'
import { createHttpServer, createMetrics, forwardedRoutes, startTlsFiles } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { PROCESS_METRICS, poolSizeOf } from '#infrastructure/processes/index.ts'
import type { Member } from '#infrastructure/processes/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import type { ApiAssignment, ApiFacts } from './api-processes.ts'
import { apiPorts, serviceOfPort } from './api-ports.ts'
import { consoleRoutes, prepareConsole } from './console.ts'
import { connectOf } from './api-settings.ts'
import type { API_SETTINGS } from './api-settings.ts'

export type ServeOptions = {
  config: ConfigsOf<typeof API_SETTINGS>
  logger: Logger
  /** The place of this process among several; undefined: it is alone. */
  place?: { member: Member; assignment: ApiAssignment }
}

export async function serveApi(life: Lifecycle, { config, logger, place }: ServeOptions): Promise<ApiFacts> {
  const { isFirst, hasReadings, count, portsInUse, embedded, elsewhere } = place?.assignment ?? ALONE
  // The files are read before the database is started, so that a wrong path is reported at once.
  const files = await startTlsFiles(life, config.http, logger)
  const infrastructure = await startInfrastructure(life, {
    config: config.infrastructure,
    logger,
    kind: 'api',
    maxConnections: poolSizeOf(count),
    sealed: SEALED_COLUMNS,
    embedded,
    machine: place?.member.machine,
  })
  const { readiness, database } = infrastructure
  const { dataDir } = infrastructure
  const onBuild = () => logger.info('building the console')
  const consolePage =
    place?.assignment.consolePage ?? (await prepareConsole({ dataDir, logger, signal: life.signal, onBuild }))
  // If there are several processes, the supervisor shows these metrics.
  const ofMachine = place === undefined ? [PROCESS_METRICS.set] : []
  const metrics = createMetrics([...INFRASTRUCTURE_METRICS, ...ofMachine, ...API_METRICS], place?.member.process)
  const { host, maxBodyBytes, trustProxy } = config.http
  const { coapPort } = config.coap
  const sharedPorts = place === undefined ? undefined : { inUse: portsInUse }
  // UDP peers are in the memory of one process.
  const coap = coapPort === 0 || !isFirst ? undefined : { host, port: coapPort, maxBodyBytes }
  const api = await startApi(life, {
    infrastructure,
    config: config.identity,
    provisioning: config.provisioning,
    rules: config.rules,
    archive: config.archive,
    coap,
    mqtt: { config: config.mqtt, host, sharedPorts, trustProxy, maxBodyBytes, files },
    connect: connectOf(config),
    processes: count,
    metrics,
  })
  if (hasReadings) await startGaugeCollection(life, infrastructure, apiGauges(database))
  const warning = api.provisioning.warningFor(host)
  if (warning !== undefined && isFirst) logger.warn(warning)
  // A stop of all processes is delayed by their supervisor.
  const http = place === undefined ? config.http : { ...config.http, stopDelayMs: 0 }
  const server = await createHttpServer(life, {
    config: http,
    logger,
    build: infrastructure.build,
    metrics,
    readiness,
    whole: place?.member.whole({ readiness, registry: metrics.registry }),
    streams: infrastructure.streams,
    keyring: infrastructure.keyring,
    files,
    ports: apiPorts(config),
    sharedPorts,
    serviceOf: serviceOfPort(coapPort, place === undefined || elsewhere === undefined ? 'api' : 'skein'),
    authenticate: api.authenticate,
    newerUrl: api.newerUrl,
    tlsOf: api.provisioning.certificates.tlsOf,
    routes: [api.routes, consoleRoutes(consolePage), ...(elsewhere === undefined ? [] : [forwardedRoutes(elsewhere)])],
  })
  // Everything behind the ports can answer. HTTP comes last: a node whose `/ready` answers serves devices too.
  const devicePorts = await api.listen()
  const listeners = await server.listen()
  return {
    scheme: server.scheme,
    ports: listeners.ports,
    takenPorts: listeners.taken,
    ...devicePorts,
    firstAdmin: api.identity.firstAdmin,
  }
}

/** A process that shares nothing. */
const ALONE: Omit<ApiAssignment, 'consolePage'> = {
  count: 1,
  isFirst: true,
  hasReadings: true,
  portsInUse: [],
  embedded: undefined,
  elsewhere: undefined,
}
