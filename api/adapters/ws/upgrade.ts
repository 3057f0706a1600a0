/** From an upgrade request to a socket. Every refusal is an ordinary answer of HTTP, before the upgrade. */
import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { WebSocketServer } from 'ws'
import type { WebSocket } from 'ws'
import type { ChannelPath, MessageAccess, MessageCredentials } from '#api/devices/index.ts'
import { parseMessagePath, parseSubtopicFilter } from '#api/messages/index.ts'
import { PROTOCOL_STATUS, ServiceError, kindOf, presentError } from '#core/errors/index.ts'
import type { StreamOwner } from '#core/streams/index.ts'
import { withDeadline } from '#core/time.ts'
import { peerCertificateOf, readCredentials } from '../credentials.ts'
import type { WebSocketAdapterDeps } from './index.ts'
import { openSession } from './session.ts'

/** Prefixes under which reverse proxies serve the paths of messages. */
const PREFIX = /^\/(?:api\/)?ws(?=\/)/
const AUTHORIZE_DEADLINE_MS = 10_000
/** RFC 6455 section 7.4.1: going away. */
const GOING_AWAY = 1001

export type Opening = {
  path: ChannelPath
  /** As it came: text to publish to, or a filter with wildcards. */
  rest: string
  filter: string
  /** Each frame is answered `{"ack": n}` when it is committed. */
  acknowledges: boolean
  /** Reads the credentials anew: a token may have expired meanwhile. */
  credentials: () => Promise<MessageCredentials>
  /** What the caller may receive; undefined for one who may publish alone. */
  subscribe: MessageAccess | undefined
  /** Null for a user. */
  clientKey: number | null
  /** Whose limits the socket counts against. */
  owner: StreamOwner
}

export type Upgrades = {
  take(request: IncomingMessage, socket: Duplex, head: Buffer): void
  stop(): void
}

/** `maxFrameBytes`: larger messages close their socket with 1009; undefined: the default of the library. */
export function createUpgrades(
  deps: WebSocketAdapterDeps,
  maxFrameBytes: number | undefined,
  logger: { error(context: object, message: string): void },
): Upgrades {
  const { gate, streams } = deps
  const server = new WebSocketServer({ noServer: true, maxPayload: maxFrameBytes })
  const sockets = new Set<WebSocket>()

  async function open(request: IncomingMessage): Promise<Opening> {
    const url = requestUrl(request)
    const named = parseMessagePath(decodeURIComponent(url.pathname.replace(PREFIX, '')))
    if (named === undefined) {
      throw new ServiceError('not_found', 'no such path: sockets are opened at /m/<domain>/c/<channel>[/<subtopic>]')
    }
    const header = request.headers.authorization
    const texts = {
      // Older clients send the bare secret.
      header: header === undefined || /^(?:Client|Basic|Bearer) /.test(header) ? header : `Client ${header}`,
      query: url.searchParams.get('authorization') ?? undefined,
      certificate: () => peerCertificateOf(request.socket),
      origin: () => ({ address: request.socket.remoteAddress ?? '', requestId: randomUUID() }),
    }
    const credentials = async () => await readCredentials(texts, deps)
    const path = { domain: named.domain, channel: named.channel }
    const given = await credentials()
    const filter = parseSubtopicFilter(named.rest)
    const subscribe = await gate.authorize(given, path, 'subscribe').catch((error: unknown) => {
      if (kindOf(error) !== 'forbidden' && kindOf(error) !== 'not_found') throw error
      return undefined
    })
    const { publisherKey: clientKey, domainId } = subscribe ?? (await gate.authorize(given, path, 'publish'))
    const user = given.kind === 'user' ? given.principal.key : undefined
    const owner = { domain: domainId, client: clientKey ?? undefined, user }
    const acknowledges = url.searchParams.get('ack') === '1'
    return { path, rest: named.rest, filter, acknowledges, credentials, subscribe, clientKey, owner }
  }

  async function take(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const opening = await withDeadline(open(request), AUTHORIZE_DEADLINE_MS, 'looking at the credentials')
    const release = streams.limits.open(opening.owner)
    // Whatever becomes of the upgrade.
    socket.once('close', release)
    if (socket.destroyed) return release()
    server.handleUpgrade(request, socket, head, (upgraded) => {
      const account = streams.budget.open({
        get waitingBytes() {
          return upgraded.bufferedAmount
        },
        cut: () => upgraded.terminate(),
      })
      sockets.add(upgraded)
      upgraded.once('close', () => {
        sockets.delete(upgraded)
        account.close()
      })
      socket.on('drain', account.update)
      openSession(upgraded, opening, deps, account)
    })
  }

  return {
    take(request, socket, head) {
      // Until the socket is a WebSocket nobody else listens; a caller that goes away is no error of ours.
      const ignore = () => socket.destroy()
      socket.on('error', ignore)
      take(request, socket, head).then(
        () => socket.removeListener('error', ignore),
        (error: unknown) => {
          if (kindOf(error) === 'internal' && !(error instanceof URIError)) {
            logger.error({ err: error }, 'a socket could not be opened')
          }
          refuse(socket, error instanceof URIError ? new ServiceError('malformed', 'the path is not valid') : error)
        },
      )
    },
    stop() {
      for (const socket of sockets) socket.close(GOING_AWAY, 'the server is stopping')
    },
  }
}

/** `//` begins a host where a URL is relative, and is a path in a request (RFC 9112 section 3.2.1). */
function requestUrl(request: IncomingMessage): URL {
  const target = request.url ?? '/'
  const url = URL.parse(target.startsWith('/') ? `http://host${target}` : target)
  if (url === null) throw new ServiceError('malformed', 'the path is not valid')
  return url
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
