/** The module proxy: its parts and how they are joined. */
import { join } from 'node:path'
import type { Secret } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { TransferClient } from '#core/transfer/index.ts'
import type { TransferLimits } from '#core/transfer/index.ts'
import { MAX_MODULE_BYTES, checkProxyConfig } from './config.ts'
import type { ProxyConfig, Registration } from './config.ts'
import {
  ProxyAccess,
  Registry,
  createProxyToken,
  proxyRoutes,
  readListenerTls,
  startListener,
} from './delivery/index.ts'
import type { DeliveryLimits, ListenerTls, ProxyToken } from './delivery/index.ts'
import { createAuth, createExchange, createRegistries, createRegistryClient, judgedDial } from './oci/index.ts'
import type { ClientLimits, Credentials, Exchange } from './oci/index.ts'
import { ModuleSource, createPushes, uploadsOver } from './source/index.ts'
import type { SourceLimits, Uploads } from './source/index.ts'

export type Proxy = {
  /** `host:port` of its HTTP listener. */
  address: string
  /** Lets transfers end for a few seconds, then cuts them; a second call waits for the first. */
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

/** In the data folder; a manager that shares it writes it. */
const PROXY_TOKEN_FILE = 'proxy-token'
const USER_AGENT = 'skein-proxy'

export type ProxyOptions = {
  config: ProxyConfig
  logger: Logger
  /** Replaces some of `PROXY_LIMITS`; tests run with shorter waits. */
  limits?: Partial<ProxyLimits>
  /** Certificate and key (PEM) where a manager of the same process has them; otherwise as the settings say. */
  tls?: ListenerTls | undefined
  /** What a manager of the same process names itself by; otherwise as the settings say. */
  token?: Secret
  /** Uploads of a manager of the same process; otherwise they are asked for over HTTP, as the settings say. */
  uploads?: Uploads
}

/**
 * Opens the cache below the data folder and serves. Throws `malformed` when settings contradict each other and
 * `unavailable` when the port is taken, both with a sentence that says what to do.
 */
export async function startProxy(options: ProxyOptions): Promise<Proxy> {
  const { config, logger, limits: changed = {}, tls: given, token } = options
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
  const { exchangeFor } = upstream
  const hasConfiguredLogin = registration.credentials !== undefined
  const pushes = createPushes({
    source,
    exchangeFor,
    defaultRegistry,
    hasConfiguredLogin,
    limits,
    signal: stopping.signal,
  })
  const access = new ProxyAccess(proxyToken)
  const registry = new Registry({ source, access, limits, logger })
  const listener = await startListener({
    host: config.host,
    port: config.port,
    tls: given ?? (await readListenerTls(config)),
    access,
    routes: proxyRoutes({ source, pushes, registry, maxModuleBytes: limits.maxModuleBytes, logger }),
    logger,
  })
  logger.info({ address: listener.address, registry: defaultRegistry }, 'module proxy is ready')
  let stopped: Promise<void> | undefined
  return { address: listener.address, stop: () => (stopped ??= stop()) }

  async function stop(): Promise<void> {
    source.close() // who waits for a pull is answered now; who is being sent a module gets the rest of it
    stopping.abort(new ServiceError('unavailable', 'the proxy is stopping'))
    await listener.close()
    upstream.close()
    managerClient.close()
  }
}

/** The client of registries, and what speaks to one with the credentials of a call, the configured ones, or none. */
function connectRegistries({ configured, credentials, policy }: Registration, limits: ProxyLimits) {
  const transport = new TransferClient({ userAgent: USER_AGENT, limits, dial: (url) => judgedDial(url, policy) })
  const registries = createRegistries(configured, policy, transport)
  const exchangeWith = (registry: string | undefined, known: Credentials | undefined): Exchange =>
    createExchange({
      transport,
      registries,
      auth: createAuth({
        transport,
        configured: registry === undefined || known === undefined ? undefined : { registry, credentials: known },
      }),
    })
  const exchange = exchangeWith(configured?.name, credentials)
  return {
    client: createRegistryClient({ transport, exchange, limits }),
    exchangeFor: (registry: string, login: Credentials | 'configured' | 'none') =>
      login === 'configured' ? exchange : exchangeWith(registry, login === 'none' ? undefined : login),
    close: () => transport.close(),
  }
}

function uploadsOfManager(client: TransferClient, config: ProxyConfig, token: ProxyToken): Uploads {
  return uploadsOver({
    client,
    baseUrl: new URL(config.managerUrl.endsWith('/') ? config.managerUrl : `${config.managerUrl}/`),
    ticketFor: async (grant, expiresSeconds) => (await token.current())?.signer.sign(grant, expiresSeconds),
  })
}

function cacheRefused(folder: string, error: unknown): ServiceError {
  const reason = error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason'
  const message = `the module cache cannot be kept in ${folder} (${reason}): set SKEIN_DATA_DIR to a folder that Skein may write`
  return new ServiceError('unavailable', message, { cause: error })
}
