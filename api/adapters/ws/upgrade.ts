/** Upgrades requests to sockets. Errors are HTTP responses before the upgrade. */
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { WebSocketServer } from 'ws'
import type { WebSocket } from 'ws'
import { PROTOCOL_STATUS, ServiceError, kindOf, presentError } from '#core/errors/index.ts'
import type { CallerAddress } from '#http/index.ts'
import type { FrameEndpoint, Streams } from '#core/streams/index.ts'
import { withDeadline } from '#core/time.ts'
import type { ChannelAccessDeps } from '../http/access.ts'
import { FrameSockets } from './frame-sockets.ts'
import type { Opening } from './opening.ts'
import { pathOf, readOpening } from './opening.ts'
import type { SessionDeps } from './session.ts'
import { WebSocketSession } from './session.ts'

const AUTHORIZE_DEADLINE_MS = 10_000
/** RFC 6455 section 7.4.1: going away. */
const GOING_AWAY = 1001

export type UpgradesDeps = ChannelAccessDeps &
  SessionDeps & {
    streams: Streams
    /** Sockets that services of other rooms serve. */
    endpoints: readonly FrameEndpoint[]
    addressOf: CallerAddress
    /** Larger messages close their socket with 1009; undefined: the default of the library. */
    maxFrameBytes: number | undefined
    logger: { error(context: object, message: string): void }
  }

export class Upgrades {
  readonly #deps: UpgradesDeps
  readonly #server: WebSocketServer
  readonly #frameSockets: FrameSockets
  readonly #sockets = new Set<WebSocket>()

  constructor(deps: UpgradesDeps) {
    this.#deps = deps
    this.#frameSockets = new FrameSockets(deps.streams, deps.addressOf)
    this.#server = new WebSocketServer({ noServer: true, maxPayload: deps.maxFrameBytes })
  }

  take(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    // Until the socket is a WebSocket there is no other listener; a caller that disconnects is not an error.
    const ignore = () => socket.destroy()
    socket.on('error', ignore)
    this.#take(request, socket, head).then(
      () => socket.removeListener('error', ignore),
      (error: unknown) => {
        if (kindOf(error) === 'internal' && !(error instanceof URIError))
          this.#deps.logger.error({ err: error }, 'failed to open a WebSocket')
        refuse(socket, error instanceof URIError ? new ServiceError('malformed', 'the path is not valid') : error)
      },
    )
  }

  /** Closes every socket. */
  stop(): void {
    this.#frameSockets.stop()
    for (const socket of this.#sockets) socket.close(GOING_AWAY, 'the server is stopping')
  }

  async #take(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const open = this.#deps.endpoints.map(({ match }) => match(pathOf(request))).find((found) => found !== undefined)
    if (open !== undefined) return this.#frameSockets.take(request, socket, head, open)
    const reading = readOpening(request, this.#deps)
    const opening = await withDeadline(reading, AUTHORIZE_DEADLINE_MS, 'looking at the credentials')
    const release = this.#deps.streams.limits.admit(opening.owner)
    // The slot is released in every outcome of the upgrade.
    socket.once('close', release)
    if (socket.destroyed) return release()
    this.#server.handleUpgrade(request, socket, head, (upgraded) => this.#begin(upgraded, socket, opening))
  }

  #begin(upgraded: WebSocket, socket: Duplex, opening: Opening): void {
    const account = this.#deps.streams.budget.open({
      get waitingBytes() {
        return upgraded.bufferedAmount
      },
      cut: () => upgraded.terminate(),
    })
    this.#sockets.add(upgraded)
    upgraded.once('close', () => {
      this.#sockets.delete(upgraded)
      account.close()
    })
    socket.on('drain', account.update)
    new WebSocketSession(upgraded, opening, this.#deps, account).begin()
  }
}

const REASONS: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'Not Found',
  409: 'Conflict',
  429: 'Too Many Requests',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
}

function refuse(socket: Duplex, error: unknown): void {
  const status = PROTOCOL_STATUS[kindOf(error)].http
  const body = JSON.stringify(presentError(error))
  const lines = [
    `HTTP/1.1 ${status} ${REASONS[status] ?? 'Error'}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Connection: close',
    ...(status === 401 ? ['WWW-Authenticate: Bearer'] : []),
    ...(status === 503 || status === 429 ? [`Retry-After: ${retryAfterSecondsOf(error)}`] : []),
  ]
  socket.end(`${lines.join('\r\n')}\r\n\r\n${body}`)
}

function retryAfterSecondsOf(error: unknown): number {
  return (error instanceof ServiceError ? error.retryAfterSeconds : undefined) ?? 1
}
