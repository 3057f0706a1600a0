/** One HTTP server program: the edge with a room's routes, listening on its ports. */
import type { FastifyRequest } from 'fastify'
import type { BuildInfo } from '../build-info.ts'
import type { Lifecycle } from '../program/index.ts'
import type { Logger } from '../logging/index.ts'
import { createHttpApp } from './edge.ts'
import type { HttpApp, RoutePlugin } from './app.ts'
import { listen } from './listeners.ts'
import type { ListenerPort, Listeners, TlsFiles } from './listeners.ts'
import type { Metrics } from './metrics.ts'
import type { HttpConfig } from './settings.ts'
import type { Streams } from '../streams/index.ts'
import { startTlsFiles } from './tls.ts'

export type HttpServerOptions = {
  config: HttpConfig
  logger: Logger
  build: BuildInfo
  metrics: Metrics
  streams: Streams
  /** The base address comes first. */
  ports: readonly ListenerPort[]
  serviceOf: (port: number | undefined) => string
  authenticate: (request: FastifyRequest) => Promise<void>
  routes: readonly RoutePlugin[]
  /** What is served with instead of the files of the settings, or without any; undefined: the files alone. */
  tlsOf?: (files: TlsFiles | undefined) => TlsFiles | undefined
}

export async function startHttpServer(
  life: Lifecycle,
  options: HttpServerOptions,
): Promise<{ app: HttpApp; listeners: Listeners; scheme: 'http' | 'https' }> {
  const { config, logger, build, metrics, streams, ports, serviceOf, authenticate, routes } = options
  const files = await startTlsFiles(life, config, logger)
  const tls = options.tlsOf === undefined ? files : options.tlsOf(files)
  const app = createHttpApp({
    logger,
    authenticate,
    health: { build, metrics, serviceOf },
    maxBodyBytes: config.maxBodyBytes,
    corsOrigins: config.corsOrigins,
    trustProxy: config.trustProxy,
  })
  const { budget, limits } = streams
  metrics.gauge('skein_streams', 'Event streams, followed outputs and WebSockets that are open', () => limits.size)
  metrics.gauge('skein_stream_waiting_bytes', 'Bytes that wait for readers', () => budget.waitingBytes)
  metrics.gauge('skein_stream_cuts', 'Readers disconnected because too many bytes waited', () => budget.cuts)
  for (const plugin of routes) await plugin(app)
  const listeners = await life.start('HTTP listeners', async () => {
    const value = await listen(app, { host: config.host, ports, tls, logger, budget: streams.budget })
    return { value, stop: () => value.stop() }
  })
  return { app, listeners, scheme: tls === undefined ? 'http' : 'https' }
}
