/** The module proxy: brings modules from OCI registries to workers, verified, cached, and once for all of them. */
import { join } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import type { Secret } from '#core/config/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { MAX_MODULE_BYTES, checkProxyConfig } from './config.ts'
import type { ProxyConfig } from './config.ts'
import {
  createCallers,
  listen,
  moduleServiceHandlers,
  readTlsFiles,
  registryServiceHandlers,
} from './delivery/index.ts'
import type { DeliveryLimits, ListenerTls } from './delivery/index.ts'
import { openModuleSource } from './module-source.ts'
import type { SourceLimits } from './module-source.ts'
import { createAuth, createExchange, createRegistries, createRegistryClient, createTransport } from './oci/index.ts'
import type { ClientLimits, Credentials, TransportLimits } from './oci/index.ts'
import { createProxyToken } from './proxy-token.ts'
import { createPushes } from './pushes.ts'
import { openSignatures } from './signatures.ts'

export { PROXY_SETTINGS } from './config.ts'
export type { ProxyConfig } from './config.ts'

export type Proxy = {
  /** `host:port` that `ModuleService` is served on. */
  address: string
  /** Lets streams end for a few seconds, then cuts them; a second call waits for the first. */
  stop(): Promise<void>
}

export type ProxyLimits = TransportLimits & ClientLimits & Omit<SourceLimits, 'maxCacheBytes'> & DeliveryLimits

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
  chunkDeadlineMs: 60_000,
  waitingChunkMs: 10_000,
}

/** In the data folder; a manager that shares it writes it. */
const PROXY_TOKEN_FILE = 'proxy-token'

export type ProxyOptions = {
  config: ProxyConfig
  logger: Logger
  /** Replaces some of `PROXY_LIMITS`; tests run with shorter waits. */
  limits?: Partial<ProxyLimits>
  /** Certificate and key (PEM) where a manager of the same process has them; otherwise as the settings say. */
  tls?: ListenerTls | undefined
  /** What a manager of the same process names itself by; otherwise as the settings say. */
  token?: Secret
}

/**
 * Opens the cache below the data folder and serves. Throws `malformed` when settings contradict each other and
 * `unavailable` when the port is taken, both with a sentence that says what to do.
 */
export async function startProxy({
  config,
  logger,
  limits: changed = {},
  tls: given,
  token,
}: ProxyOptions): Promise<Proxy> {
  const { configured, credentials, policy } = checkProxyConfig(config, given !== undefined)
  const limits = { ...PROXY_LIMITS, ...changed, maxCacheBytes: config.cacheBytes }
  const transport = createTransport(policy, limits)
  const registries = createRegistries(configured, policy, transport)
  const exchangeFor = (registry: string | undefined, known: Credentials | undefined) =>
    createExchange({
      transport,
      registries,
      auth: createAuth({
        transport,
        configured: registry === undefined || known === undefined ? undefined : { registry, credentials: known },
      }),
    })
  const exchange = exchangeFor(configured?.name, credentials)
  const client = createRegistryClient({ transport, exchange, limits })
  const folder = join(config.dataDir, 'proxy')
  const defaultRegistry = configured?.name
  const source = await openSignatures(client, folder)
    .then((signatures) => openModuleSource({ client, signatures, folder, defaultRegistry, limits, logger }))
    .catch((error: unknown) => {
      throw cacheRefused(folder, error)
    })
  const stopping = new AbortController()
  const pushes = createPushes({
    source,
    exchangeFor: (registry, own) => (own === undefined ? exchange : exchangeFor(registry, own)),
    defaultRegistry,
    limits,
    signal: stopping.signal,
  })
  const tls = given ?? (await readTlsFiles(config))
  const callers = createCallers(createProxyToken(token ?? config.token, join(config.dataDir, PROXY_TOKEN_FILE)))
  const modules = moduleServiceHandlers({ source, callers, limits, logger })
  const listener = await listen(modules, registryServiceHandlers({ source, pushes, callers, logger }), {
    host: config.host,
    port: config.port,
    tls,
  })
  logger.info({ address: listener.address, registry: configured?.name }, 'module proxy is ready')

  let stopped: Promise<void> | undefined
  return {
    address: listener.address,
    stop() {
      stopped ??= stop()
      return stopped
    },
  }

  async function stop(): Promise<void> {
    source.close() // who waits for a pull gets its answer now; who is being sent a module gets the rest of it
    stopping.abort(new ServiceError('unavailable', 'the proxy is stopping'))
    await listener.close()
    transport.close()
  }
}

function cacheRefused(folder: string, error: unknown): ServiceError {
  const reason = error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason'
  const message = `the module cache cannot be kept in ${folder} (${reason}): set SKEIN_DATA_DIR to a folder that Skein may write`
  return new ServiceError('unavailable', message, { cause: error })
}
