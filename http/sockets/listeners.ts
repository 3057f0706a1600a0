/** The listeners: every port serves every route, so that a client configured with one address per service works. */
import { createServer as createHttpServer } from 'node:http'
import type { IncomingMessage, Server, ServerOptions, ServerResponse } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo, Server as NetServer, Socket } from 'node:net'
import { Server as TlsServer } from 'node:tls'
import type { Logger } from '#core/logging/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { Connections } from './connections.ts'
import type { HttpApp } from '../app.ts'
import type { StreamBudget } from '#core/streams/index.ts'
import { adoptPeer } from './forward.ts'
import { watchSlowReaders } from './slow-readers.ts'
import type { SlowReaderTimes } from './slow-readers.ts'
import { writeErrorResponse, respondToUnreadable, hostFault, refuse } from './unreadable.ts'

export type ListenerPort = {
  port: number
  /** A port that is already in use gives a warning instead of an error. */
  isOptional: boolean
  /** The setting that changes this port, named in the error. */
  setting: string
}

/** PEM. With `ca`, a client may present a certificate; one that is not signed by these authorities is ignored. */
export type TlsFiles = {
  cert: Buffer
  key: Buffer
  ca?: Buffer
  /** Called by listeners to receive renewed files; returns a function that unsubscribes. */
  follow?: (listener: (files: TlsFiles) => void) => () => void
}

/**
 * Several processes open the same ports, and the kernel distributes connections among them (SO_REUSEPORT, Linux). A port that
 * another program of the same user opened in this way would be shared with that program too: the ports that were in use before the
 * first of our processes started count as in use.
 */
export type SharedPorts = { readonly inUse: readonly number[] }

export type ListenOptions = {
  host: string
  ports: readonly ListenerPort[]
  /** Undefined: this process alone opens the ports. */
  sharedPorts?: SharedPorts | undefined
  /** Path of a socket for requests that other processes of this machine pass on; see `forward.ts`. */
  privateSocket?: string | undefined
  tls?: TlsFiles | undefined
  logger: Logger
  requestDeadlineMs?: number
  /** Counts bytes that wait to be read; without it nothing is counted. */
  budget?: StreamBudget
  /** Overrides for tests. */
  slowReaderTimes?: SlowReaderTimes
}

export type Listeners = {
  /** The bound ports in the order of the options, without optional ports that were in use. */
  readonly ports: readonly number[]
  /** Optional ports that were in use. */
  readonly taken: readonly number[]
  /** Stops accepting, waits for running requests until the deadline, then closes their sockets. */
  stop(deadlineMs?: number): Promise<void>
}

/** The deadline for the arrival of a whole request. */
const REQUEST_DEADLINE_MS = 60_000
/** The idle time after which a kept-alive connection is closed. */
const KEEP_ALIVE_MS = 65_000
/** The interval at which connections are checked for late requests; it is also the tolerance of the deadline. */
const DEADLINE_CHECK_MS = 5000
/** The time that running requests get before their sockets are closed. */
const DRAIN_MS = 5000
/** The interval at which a stop checks for connections that have become idle. */
const IDLE_CHECK_MS = 25

export async function listen(app: HttpApp, options: ListenOptions): Promise<Listeners> {
  await app.ready()
  let isStopping = false
  const { requestDeadlineMs = REQUEST_DEADLINE_MS } = options
  const connections = new Connections()
  const slowReaders = watchSlowReaders(options.budget, options.slowReaderTimes)
  const handler = (request: IncomingMessage, response: ServerResponse) => {
    slowReaders.watch(request.socket, response)
    // A caller that keeps its connection would send the next request to a server that is stopping.
    if (isStopping) response.setHeader('Connection', 'close')
    const handle = () => {
      const fault = hostFault(request)
      if (fault !== undefined) refuse(request, response, fault)
      else app.routing(request, response)
    }
    connections.of(request.socket)?.take(response, handle)
  }
  const servers: Server[] = []
  const bound = new Set<number>()
  const taken: number[] = []
  for (const wanted of options.ports) {
    // Two settings may name the same port.
    if (wanted.port !== 0 && bound.has(wanted.port)) continue
    const server = createServer(app, handler, { tls: options.tls, requestDeadlineMs, connections })
    try {
      await openPort(server, { port: wanted.port, host: options.host }, options.sharedPorts)
    } catch (error) {
      if (wanted.isOptional && (error as NodeJS.ErrnoException).code === 'EADDRINUSE') {
        taken.push(wanted.port)
        continue
      }
      await Promise.all(servers.map((other) => close(other, 0)))
      slowReaders.stop()
      throw portError(error, wanted, options.host)
    }
    // From here on, the server reports errors of single connections, such as too many open files.
    server.on('error', (error) => options.logger.warn({ err: error }, 'failed to accept a connection'))
    servers.push(server)
    bound.add(wanted.port)
  }
  const ports = servers.map((server) => (server.address() as AddressInfo).port)
  if (options.privateSocket !== undefined) {
    const adopt = (request: IncomingMessage, response: ServerResponse) => {
      adoptPeer(request)
      handler(request, response)
    }
    const server = createServer(app, adopt, { tls: undefined, requestDeadlineMs, connections })
    await openSocket(server, options.privateSocket)
    servers.push(server)
  }
  if (taken.length > 0)
    options.logger.warn(`ports ${taken.join(', ')} are in use by another program; the base address serves every path`)
  return {
    ports,
    taken,
    async stop(deadlineMs = DRAIN_MS) {
      isStopping = true
      connections.closeWhenAnswered()
      await Promise.all(servers.map((server) => close(server, deadlineMs)))
      slowReaders.stop()
      await app.close()
    },
  }
}

function createServer(
  app: HttpApp,
  handler: (request: IncomingMessage, response: ServerResponse) => void,
  {
    tls,
    requestDeadlineMs,
    connections,
  }: { tls: TlsFiles | undefined; requestDeadlineMs: number; connections: Connections },
): Server {
  const settings: ServerOptions = {
    requestTimeout: requestDeadlineMs,
    headersTimeout: requestDeadlineMs,
    keepAliveTimeout: KEEP_ALIVE_MS,
    connectionsCheckingInterval: Math.min(DEADLINE_CHECK_MS, requestDeadlineMs),
    // Node's own error response has no body; ours is that of the contract.
    requireHostHeader: false,
    // Clients offer HTTP/2 by an upgrade (`h2c`), which is not supported: RFC 9110 section 7.8 allows ignoring it.
    shouldUpgradeCallback: ({ headers }) =>
      headers.upgrade?.toLowerCase() === 'websocket' && app.server.listenerCount('upgrade') > 0,
  }
  const server =
    tls === undefined
      ? createHttpServer(settings, handler)
      : createHttpsServer(
          { ...settings, ...tls, requestCert: tls.ca !== undefined, rejectUnauthorized: false },
          handler,
        )
  // Upgrades on all ports are passed to the adapters, which listen on the app's own server.
  server.on('upgrade', (request, socket, head) => {
    const fault = hostFault(request)
    if (fault === undefined) app.server.emit('upgrade', request, socket, head)
    else writeErrorResponse(socket, fault)
  })
  server.on('clientError', (error, duplex) => {
    const socket = duplex as Socket
    respondToUnreadable(error, socket, connections.of(socket)?.isAnswering === true)
  })
  server.on(tls === undefined ? 'connection' : 'secureConnection', connections.open)
  if (server instanceof TlsServer) followTls(server, tls)
  // RFC 9110 section 10.1.1 allows ignoring unknown expectations.
  server.on('checkExpectation', handler)
  return server
}

/** New handshakes use the new files; open connections keep theirs. */
export function followTls(server: TlsServer, tls: TlsFiles | undefined): void {
  const unfollow = tls?.follow?.((files) => server.setSecureContext(files))
  if (unfollow !== undefined) server.once('close', unfollow)
}

/** Rejects with the error of the system, such as EADDRINUSE. */
export function openPort(
  server: NetServer,
  { port, host }: { port: number; host: string },
  shared: SharedPorts | undefined,
): Promise<void> {
  if (shared?.inUse.includes(port) === true)
    return Promise.reject(Object.assign(new Error(`port ${port} is in use`), { code: 'EADDRINUSE' }))
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen({ port, host, ...(shared === undefined ? {} : { reusePort: true }) }, () => {
      server.removeListener('error', reject)
      resolve()
    })
  })
}

/** The folder of the socket must be private: a request names its caller there. */
function openSocket(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen({ path }, () => {
      server.removeListener('error', reject)
      resolve()
    })
  })
}

function close(server: Server, deadlineMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => server.closeAllConnections(), deadlineMs)
    // A kept-alive connection that was busy when the stop began becomes idle after its response.
    const idle = setInterval(() => server.closeIdleConnections(), IDLE_CHECK_MS)
    server.close(() => {
      clearTimeout(timer)
      clearInterval(idle)
      resolve()
    })
    server.closeIdleConnections()
  })
}

/** One sentence that names the setting to change. */
export function portError(
  error: unknown,
  { port, setting }: { port: number; setting: string },
  host: string,
): ServiceError {
  const { code, message } = error as NodeJS.ErrnoException
  const reasons: Record<string, string> = {
    EADDRINUSE: `port ${port} on ${host} is already in use; stop the other program, or set ${setting} to a free port`,
    EACCES: `port ${port} requires privileges that this user does not have; set ${setting} to a port above 1023`,
    EADDRNOTAVAIL: `${host} is not an address of this machine; set SKEIN_HOST`,
    ENOTFOUND: `the host name ${host} cannot be resolved; set SKEIN_HOST`,
  }
  return new ServiceError(
    'unavailable',
    reasons[code ?? ''] ?? `cannot listen on ${host}:${port} (${setting}): ${message}`,
    { cause: error },
  )
}
