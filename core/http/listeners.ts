/** The ports: every port serves every route, so that a client configured with one address per service works. */
import { createServer as createHttpServer } from 'node:http'
import type { IncomingMessage, Server, ServerOptions, ServerResponse } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import { Server as TlsServer } from 'node:tls'
import type { Logger } from '../logging/index.ts'
import { ServiceError } from '../errors/index.ts'
import { Connections } from './connections.ts'
import type { HttpApp } from './app.ts'
import type { StreamBudget } from '../streams/index.ts'
import { watchSlowReaders } from './slow-readers.ts'
import type { SlowReaderTimes } from './slow-readers.ts'
import { answerBare, answerUnreadable, hostFault, refuse } from './unreadable.ts'

export type ListenerPort = {
  port: number
  /** A port that is taken is a warning instead of a failure. */
  isOptional: boolean
  /** The setting that moves this port, named in the error. */
  setting: string
}

/** PEM. With `ca` a client may present a certificate; one that is not signed by these counts as none. */
export type TlsFiles = {
  cert: Buffer
  key: Buffer
  ca?: Buffer
  /** Where they are renewed while listeners use them: gives each new set, and the way to end that. */
  follow?: (listener: (files: TlsFiles) => void) => () => void
}

export type ListenOptions = {
  host: string
  ports: readonly ListenerPort[]
  tls?: TlsFiles | undefined
  logger: Logger
  requestDeadlineMs?: number
  /** Counts what waits to be read; absent: nothing is counted. */
  budget?: StreamBudget
  /** Tests shorten them. */
  slowReaderTimes?: SlowReaderTimes
}

export type Listeners = {
  /** The bound ports in the order asked for; an optional port that was taken is left out. */
  readonly ports: readonly number[]
  /** Ports that were taken. */
  readonly taken: readonly number[]
  /** Stops accepting, lets running requests end until the deadline, then closes their sockets. */
  stop(deadlineMs?: number): Promise<void>
}

/** The whole request must have arrived by then. */
const REQUEST_DEADLINE_MS = 60_000
/** An idle kept-alive connection is closed after this. */
const KEEP_ALIVE_MS = 65_000
/** How often connections are looked through for late requests; a deadline is that much inexact. */
const DEADLINE_CHECK_MS = 5000
/** Running requests get this long before their sockets are closed. */
const DRAIN_MS = 5000
/** How often a stop looks for connections that have become idle. */
const IDLE_CHECK_MS = 25

export async function listen(app: HttpApp, options: ListenOptions): Promise<Listeners> {
  await app.ready()
  let isStopping = false
  const { requestDeadlineMs = REQUEST_DEADLINE_MS } = options
  const connections = new Connections()
  const slowReaders = watchSlowReaders(options.budget, options.slowReaderTimes)
  const handler = (request: IncomingMessage, response: ServerResponse) => {
    slowReaders.watch(request.socket, response)
    // A caller that keeps its connection would send the next request to a closed door.
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
    // Two settings may name the same port: it serves every route anyway.
    if (wanted.port !== 0 && bound.has(wanted.port)) continue
    const server = createServer(app, handler, { tls: options.tls, requestDeadlineMs, connections })
    try {
      await bind(server, wanted.port, options.host)
    } catch (error) {
      if (wanted.isOptional && (error as NodeJS.ErrnoException).code === 'EADDRINUSE') {
        taken.push(wanted.port)
        continue
      }
      await Promise.all(servers.map((other) => close(other, 0)))
      slowReaders.stop()
      throw portError(error, wanted, options.host)
    }
    // From here on: a connection that could not be accepted, such as one too many for the open files of the process.
    server.on('error', (error) => options.logger.warn({ err: error }, 'a connection could not be accepted'))
    servers.push(server)
    bound.add(wanted.port)
  }
  if (taken.length > 0)
    options.logger.warn(
      `ports ${taken.join(', ')} are taken by another program; everything is also on the base address`,
    )
  return {
    ports: servers.map((server) => (server.address() as AddressInfo).port),
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
    // Node's own refusal has no body; ours is that of the contract.
    requireHostHeader: false,
    // Clients offer HTTP/2 by an upgrade (`h2c`) that we do not take: RFC 9110 section 7.8 lets us go on without it.
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
  // An upgrade on any port reaches the adapters that listen on the app's own server.
  server.on('upgrade', (request, socket, head) => {
    const fault = hostFault(request)
    if (fault === undefined) app.server.emit('upgrade', request, socket, head)
    else answerBare(socket, fault)
  })
  server.on('clientError', (error, duplex) => {
    const socket = duplex as Socket
    answerUnreadable(error, socket, connections.of(socket)?.isAnswering === true)
  })
  server.on(tls === undefined ? 'connection' : 'secureConnection', connections.open)
  if (server instanceof TlsServer) followTls(server, tls)
  // RFC 9110 section 10.1.1 lets us go on where more is expected than we know of.
  server.on('checkExpectation', handler)
  return server
}

/** New handshakes get what is new; connections that are open keep what they began with. */
export function followTls(server: TlsServer, tls: TlsFiles | undefined): void {
  const unfollow = tls?.follow?.((files) => server.setSecureContext(files))
  if (unfollow !== undefined) server.once('close', unfollow)
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
    // A kept-alive connection that was busy when the stop began idles once its answer is sent.
    const idle = setInterval(() => server.closeIdleConnections(), IDLE_CHECK_MS)
    server.close(() => {
      clearTimeout(timer)
      clearInterval(idle)
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
    ENOTFOUND: `the address ${host} is not known: set SKEIN_HOST`,
  }
  return new ServiceError(
    'unavailable',
    reasons[code ?? ''] ?? `cannot listen on ${host}:${port} (${setting}): ${message}`,
    { cause: error },
  )
}
