/** One HTTP server: the edge with the routes of the rooms, and its ports, which are opened later. */
import type { FastifyRequest } from 'fastify'
import type { BuildInfo } from '#core/build-info.ts'
import type { Lifecycle } from '#core/program/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { createHttpApp } from './edge.ts'
import type { EdgeOptions } from './edge.ts'
import type { HttpApp, RoutePlugin } from './app.ts'
import { listen } from './sockets/listeners.ts'
import type { ListenerPort, Listeners, SharedPorts, TlsFiles } from './sockets/listeners.ts'
import type { Whole } from './health.ts'
import type { Metrics } from './metrics.ts'
import type { HttpConfig } from './settings.ts'
import type { Readiness } from '#core/readiness/index.ts'
import { removeSources } from '#core/metrics/index.ts'
import { STREAM_METRICS } from '#core/streams/index.ts'
import type { Streams } from '#core/streams/index.ts'
import { isLoopbackHost } from '#core/loopback.ts'

export type HttpServerOptions = {
  config: HttpConfig
  logger: Logger
  build: BuildInfo
  metrics: Metrics
  readiness: Readiness
  streams: Streams
  keyring: NonNullable<EdgeOptions['keyring']>
  /** The base address comes first. */
  ports: readonly ListenerPort[]
  /** The files that `startTlsFiles` returned. Undefined: no TLS is configured. */
  files: TlsFiles | undefined
  serviceOf: (port: number | undefined) => string
  authenticate: (request: FastifyRequest) => Promise<void>
  routes: readonly RoutePlugin[]
  /** See `EdgeOptions`. */
  newerUrl?: EdgeOptions['newerUrl']
  /** All processes of the program, where there are several. */
  whole?: Whole | undefined
  /** Set where several processes open the same ports. */
  sharedPorts?: SharedPorts | undefined
  /** Path of a socket for requests that other processes of this machine pass on; see `forward.ts`. */
  privateSocket?: string | undefined
  /** Replaces the TLS files of the settings, also when there are none; undefined leaves them unchanged. */
  tlsOf?: (files: TlsFiles | undefined) => TlsFiles | undefined
}

export type HttpServer = {
  readonly app: HttpApp
  readonly scheme: 'http' | 'https'
  /** Opens the ports. Throws `unavailable` when one of them is in use. */
  listen(): Promise<Listeners>
}

/**
 * Builds the application, which keeps the process busy. No port is open until `listen` is called, so that clients meanwhile connect to
 * another node.
 */
export async function createHttpServer(life: Lifecycle, options: HttpServerOptions): Promise<HttpServer> {
  const { config, logger, build, metrics, readiness, streams, ports, files, serviceOf, authenticate, routes } = options
  const tls = options.tlsOf === undefined ? files : options.tlsOf(files)
  const app = createHttpApp({
    logger,
    authenticate,
    health: { build, metrics, readiness, serviceOf, whole: options.whole },
    maxBodyBytes: config.maxBodyBytes,
    corsOrigins: config.corsOrigins,
    trustProxy: config.trustProxy,
    keyring: options.keyring,
    newerUrl: options.newerUrl,
  })
  await life.start('HTTP application', async () => {
    for (const plugin of routes) await plugin(app)
    await app.ready()
    const { budget, limits } = streams
    const sources = [
      STREAM_METRICS.open.fromValue(() => limits.size),
      STREAM_METRICS.waiting.fromValue(() => budget.waitingBytes),
      STREAM_METRICS.limit.fromValue(() => budget.maxBytes),
    ]
    return { value: undefined, stop: () => Promise.resolve(removeSources(sources)) }
  })
  return { app, scheme: tls === undefined ? 'http' : 'https', listen: open }

  async function open(): Promise<Listeners> {
    const { sharedPorts, privateSocket } = options
    const listeners = await life.start('HTTP listeners', async () => {
      const shared = { sharedPorts, privateSocket }
      const value = await listen(app, { host: config.host, ports, tls, logger, budget: streams.budget, ...shared })
      return { value, stop: () => value.stop() }
    })
    life.delayStop(config.stopDelayMs)
    warnWithoutTls()
    return listeners
  }

  function warnWithoutTls(): void {
    if (tls !== undefined || config.trustProxy.length > 0 || isLoopbackHost(config.host)) return
    logger.warn(
      { host: config.host },
      'HTTP is served without TLS to other machines: passwords and messages cross the network in plain text. Set SKEIN_TLS_CERT and SKEIN_TLS_KEY, or SKEIN_TRUST_PROXY behind a reverse proxy that terminates TLS',
    )
  }
}
