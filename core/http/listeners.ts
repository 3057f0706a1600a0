/** The ports: every port serves every route, so that a client configured with one address per service works. */
import { createServer as createHttpServer } from 'node:http'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { ServiceError } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'
import type { HttpApp } from './edge.ts'

export type ListenerPort = {
  port: number
  /** A port that is taken is a warning instead of a failure. */
  isOptional: boolean
  /** The setting that moves this port, named in the error. */
  setting: string
}

export type TlsFiles = { cert: Buffer; key: Buffer; ca?: Buffer }

export type Listeners = {
  /** The bound ports in the order asked for; an optional port that was taken is left out. */
  readonly ports: readonly number[]
  /** Ports that were taken. */
  readonly taken: readonly number[]
  /** Stops accepting, lets running requests end until the deadline, then closes their sockets. */
  stop(deadlineMs?: number): Promise<void>
}

/** Running requests get this long before their sockets are closed. */
const DRAIN_MS = 5000

export async function listen(
  app: HttpApp,
  options: { host: string; ports: readonly ListenerPort[]; tls?: TlsFiles | undefined; logger: Logger },
): Promise<Listeners> {
  await app.ready()
  const servers: Server[] = []
  const taken: number[] = []
  for (const wanted of options.ports) {
    const handler = (request: IncomingMessage, response: ServerResponse) => app.routing(request, response)
    const server =
      options.tls === undefined ? createHttpServer(handler) : createHttpsServer({ ...options.tls }, handler)
    Object.assign(server, {
      requestTimeout: app.server.requestTimeout,
      keepAliveTimeout: app.server.keepAliveTimeout,
      headersTimeout: app.server.headersTimeout,
    })
    // An upgrade on any port reaches the adapters that listen on the app's own server.
    server.on('upgrade', (...upgrade) => {
      if (!app.server.emit('upgrade', ...upgrade)) upgrade[1].destroy()
    })
    try {
      await bind(server, wanted.port, options.host)
      servers.push(server)
    } catch (error) {
      if (wanted.isOptional && (error as NodeJS.ErrnoException).code === 'EADDRINUSE') {
        taken.push(wanted.port)
        continue
      }
      await Promise.all(servers.map((other) => close(other, 0)))
      throw portError(error, wanted, options.host)
    }
  }
  if (taken.length > 0)
    options.logger.warn(
      `ports ${taken.join(', ')} are taken by another program; everything is also on the base address`,
    )
  return {
    ports: servers.map((server) => (server.address() as AddressInfo).port),
    taken,
    async stop(deadlineMs = DRAIN_MS) {
      await Promise.all(servers.map((server) => close(server, deadlineMs)))
      await app.close()
    },
  }
}

function bind(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen({ port, host }, () => {
      server.removeListener('error', reject)
      resolve()
    })
  })
}

function close(server: Server, deadlineMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => server.closeAllConnections(), deadlineMs)
    server.close(() => {
      clearTimeout(timer)
      resolve()
    })
    server.closeIdleConnections()
  })
}

/** One sentence that says which setting to change. */
export function portError(
  error: unknown,
  { port, setting }: { port: number; setting: string },
  host: string,
): ServiceError {
  const { code, message } = error as NodeJS.ErrnoException
  const reasons: Record<string, string> = {
    EADDRINUSE: `port ${port} on ${host} is already taken: stop the other program or set ${setting} to a free port`,
    EACCES: `port ${port} may not be opened by this user: set ${setting} to a port above 1023`,
    EADDRNOTAVAIL: `the address ${host} is not one of this machine: set SKEIN_HOST`,
  }
  return new ServiceError(
    'unavailable',
    reasons[code ?? ''] ?? `cannot listen on ${host}:${port} (${setting}): ${message}`,
    { cause: error },
  )
}
