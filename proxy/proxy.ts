/** The module proxy: its parts and their connections. */
import { join } from 'node:path'
import type { Secret } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { createMetrics } from '#http/index.ts'
import type { Metrics } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startProbe } from '#core/readiness/index.ts'
import type { Probe, Readiness } from '#core/readiness/index.ts'
import { TransferClient, discard } from '#core/transfer/index.ts'
import { diskGauges, startCollector } from '#core/metrics/index.ts'
import type { TransferLimits } from '#core/transfer/index.ts'
import { MAX_MODULE_BYTES, checkProxyConfig } from './config.ts'
import type { ProxyConfig, Registration } from './config.ts'
import { PROXY_METRICS } from './metrics.ts'
import {
  ProxyAccess,
  Registry,
  createProxyToken,
  proxyRoutes,
  readListenerTls,
  startListener,
} from './delivery/index.ts'
import type { DeliveryLimits, ListenerTls, ProxyToken } from './delivery/index.ts'
import { createAuth, createRegistryHttp, createRegistries, createRegistryClient, checkedDial } from './oci/index.ts'
import type { ClientLimits, Credentials, RegistryHttp } from './oci/index.ts'
import { ModuleSource, createPushes, uploadsOver } from './source/index.ts'
import type { SourceLimits, Uploads } from './source/index.ts'

export type Proxy = {
  /** `host:port` of its HTTP listener. */
  address: string
  /** Waits a few seconds for active transfers, then aborts them; a second call waits for the first. */
  stop(): Promise<void>
}

export type ProxyLimits = TransferLimits & ClientLimits & Omit<SourceLimits, 'maxCacheBytes'> & DeliveryLimits

export const PROXY_LIMITS: ProxyLimits = {
  headersMs: 30_000,
  stallMs: 30_000,
  retryDelayMs: 500,
  maxRetryAfterMs: 60_000,
  maxModuleBytes: MAX_MODULE_BYTES,
  tagFreshMs: 60_000,
  tagHoldMs: 10_000,
  pullDeadlineMs: 10 * 60_000,
  maxStreams: 1024,
  pieceDeadlineMs: 60_000,
  pullWaitMs: 20_000,
}

/** The file is in the data folder; a manager with the same folder writes it. */
const PROXY_TOKEN_FILE = 'proxy-token'
/** Interval and deadline of readiness probes. */
const PROBE_INTERVAL_MS = 2_000
const PROBE_DEADLINE_MS = 2_000
const USER_AGENT = 'skein-proxy'

export type ProxyOptions = {
  config: ProxyConfig
  logger: Logger
  /** Readiness of the process; the proxy adds its checks. */
  readiness: Readiness
  /** Overrides some of `PROXY_LIMITS`; tests use shorter waits. */
  limits?: Partial<ProxyLimits>
  /** Certificate and key (PEM) from a manager of the same process; otherwise from the settings. */
  tls?: ListenerTls | undefined
  /** The token of a manager of the same process; otherwise from the settings. */
  token?: Secret
  /** Uploads of a manager of the same process; otherwise they are fetched over HTTP, from the settings. */
  uploads?: Uploads
  /** Metrics of the process that hosts the proxy, which reads the disk for all of it; otherwise the proxy has its own. */
  metrics?: Metrics
}

/**
 * Opens the cache below the data folder and serves. Throws `malformed` if settings contradict each other and
 * `unavailable` if the port is in use, both with a remedy.
 */
export async function startProxy(options: ProxyOptions): Promise<Proxy> {
  const { config, logger, readiness, limits: changed = {}, tls: given, token } = options
  const registration = checkProxyConfig(config, given !== undefined)
  const limits = { ...PROXY_LIMITS, ...changed, maxCacheBytes: config.cacheBytes }
  const proxyToken = createProxyToken(token ?? config.token, join(config.dataDir, PROXY_TOKEN_FILE))
  const upstream = connectRegistries(registration, limits)
  const managerClient = new TransferClient({ userAgent: USER_AGENT, limits })
  const uploads = options.uploads ?? uploadsOfManager(managerClient, config, proxyToken)
  const folder = join(config.dataDir, 'proxy')
  const defaultRegistry = registration.configured?.name
  const source = await ModuleSource.open({
    client: upstream.client,
    uploads,
    folder,
    defaultRegistry,
    limits,
    logger,
  }).catch((error: unknown) => {
    throw cacheRefused(folder, error)
  })
  const stopping = new AbortController()
  const { registryHttpFor } = upstream
  const hasConfiguredLogin = registration.credentials !== undefined
  const pushes = createPushes({
    source,
    registryHttpFor,
    defaultRegistry,
    hasConfiguredLogin,
    limits,
    signal: stopping.signal,
  })
  const access = new ProxyAccess(proxyToken)
  const probes = [watchToken(readiness, proxyToken)]
  if (options.uploads === undefined) probes.push(watchManager(readiness, managerClient, config))
  const registry = new Registry({ source, access, limits, logger })
  const listener = await startListener({
    host: config.host,
    port: config.port,
    tls: given ?? (await readListenerTls(config)),
    access,
    metrics: options.metrics ?? createMetrics(PROXY_METRICS),
    routes: proxyRoutes({ source, pushes, registry, maxModuleBytes: limits.maxModuleBytes, logger }),
    readiness,
    logger,
  })
  const collector =
    options.metrics === undefined ? startCollector({ collected: [diskGauges(config.dataDir)], logger }) : undefined
  logger.info({ address: listener.address, registry: defaultRegistry }, 'module proxy is ready')
  let stopped: Promise<void> | undefined
  return { address: listener.address, stop: () => (stopped ??= stop()) }

  async function stop(): Promise<void> {
    source.close() // waiting requests fail now; active downloads are completed
    stopping.abort(new ServiceError('unavailable', 'the proxy is shutting down'))
    await collector?.stop()
    await listener.close()
    await Promise.all(probes.map((probe) => probe.stop()))
    upstream.close()
    managerClient.close()
  }
}

/** The registry client, and requests with the credentials of a call, the configured ones, or none. */
function connectRegistries({ configured, credentials, policy }: Registration, limits: ProxyLimits) {
  const transport = new TransferClient({ userAgent: USER_AGENT, limits, dial: (url) => checkedDial(url, policy) })
  const registries = createRegistries(configured, policy, transport)
  const httpFor = (registry: string | undefined, known: Credentials | undefined): RegistryHttp =>
    createRegistryHttp({
      transport,
      registries,
      auth: createAuth({
        transport,
        configured: registry === undefined || known === undefined ? undefined : { registry, credentials: known },
      }),
    })
  const registryHttp = httpFor(configured?.name, credentials)
  return {
    client: createRegistryClient({ transport, registryHttp, limits }),
    registryHttpFor: (registry: string, login: Credentials | 'configured' | 'none') =>
      login === 'configured' ? registryHttp : httpFor(registry, login === 'none' ? undefined : login),
    close: () => transport.close(),
  }
}

/** Without the token no caller can be authenticated, so every request is refused. */
function watchToken(readiness: Readiness, token: ProxyToken): Probe {
  const missing = 'no proxy token: set SKEIN_PROXY_TOKEN here and at the manager, or give both the same SKEIN_DATA_DIR'
  const probe = startProbe({
    ask: async () => ((await token.current()) === undefined ? missing : undefined),
    failure: missing,
    intervalMs: PROBE_INTERVAL_MS,
    deadlineMs: PROBE_DEADLINE_MS,
  })
  readiness.add({ name: 'token', isRequired: true, read: probe.read })
  return probe
}

function watchManager(readiness: Readiness, client: TransferClient, config: ProxyConfig): Probe {
  const url = new URL('ready', managerUrlOf(config))
  const probe = startProbe({
    async ask(signal) {
      const answer = await client.get(url, {}, signal)
      discard(answer)
      return answer.status === 200 ? undefined : 'the task manager is not ready: uploaded modules cannot be fetched'
    },
    failure: 'the task manager does not answer: uploaded modules cannot be fetched',
    intervalMs: PROBE_INTERVAL_MS,
    deadlineMs: PROBE_DEADLINE_MS,
  })
  readiness.add({ name: 'manager', isRequired: false, read: probe.read })
  return probe
}

function managerUrlOf({ managerUrl }: ProxyConfig): URL {
  return new URL(managerUrl.endsWith('/') ? managerUrl : `${managerUrl}/`)
}

function uploadsOfManager(client: TransferClient, config: ProxyConfig, token: ProxyToken): Uploads {
  return uploadsOver({
    client,
    baseUrl: managerUrlOf(config),
    ticketFor: async (grant, expiresSeconds) => (await token.current())?.signer.sign(grant, expiresSeconds),
  })
}

function cacheRefused(folder: string, error: unknown): ServiceError {
  const reason = error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason'
  const message = `cannot open the module cache in ${folder} (${reason}): set SKEIN_DATA_DIR to a writable folder`
  return new ServiceError('unavailable', message, { cause: error })
}
