/** Parses and authorizes a request to open a socket. */
import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { ChannelPath, ChannelAccess, MessageCredentials } from '#api/devices/index.ts'
import { liveFilter, parseMessagePath } from '#api/messages/index.ts'
import { parseAuthorization } from '#core/authorization.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { CallerAddress } from '#http/index.ts'
import type { StreamOwner } from '#core/streams/index.ts'
import { peerCertificateOf, readCredentials } from '../credentials/credentials.ts'
import type { ChannelAccessDeps } from '../http/access.ts'

/** Prefixes under which reverse proxies serve the paths of messages. */
const PREFIX = /^\/(?:api\/)?ws(?=\/)/

const SCHEMES: ReadonlySet<string> = new Set(['client', 'thing', 'basic', 'bearer'])

export type OpeningDeps = ChannelAccessDeps & { addressOf: CallerAddress }

export type Opening = {
  path: ChannelPath
  /** The unparsed subtopic: for publishing, or a filter with wildcards. */
  rest: string
  wanted: ReturnType<typeof liveFilter>
  /** Each frame is answered `{"ack": n}` when it is committed. */
  acknowledges: boolean
  /** Checks the credentials again: a token may have expired. */
  credentials: () => Promise<MessageCredentials>
  /** The access for receiving; undefined for a caller who may only publish. */
  subscribe: ChannelAccess | undefined
  /** Null for a user. */
  clientKey: number | null
  /** The owner against whose limits the socket counts. */
  owner: StreamOwner
}

/** Throws the errors of an HTTP request. */
export async function readOpening(request: IncomingMessage, deps: OpeningDeps): Promise<Opening> {
  const url = requestUrl(request)
  const named = parseMessagePath(decodeURIComponent(url.pathname.replace(PREFIX, '')))
  if (named === undefined) {
    throw new ServiceError('not_found', 'no such path: sockets are opened at /m/<domain>/c/<channel>[/<subtopic>]')
  }
  const credentials = credentialsOf(request, url, deps)
  const path = { domain: named.domain, channel: named.channel }
  const given = await credentials()
  const wanted = liveFilter({ subtopic: named.rest, without: url.searchParams.get('without') ?? undefined }, '')
  const subscribe = await deps.gate.authorize(given, path, 'subscribe').catch((error: unknown) => {
    if (kindOf(error) !== 'forbidden' && kindOf(error) !== 'not_found') throw error
    return undefined
  })
  const { publisherKey: clientKey, domainId } = subscribe ?? (await deps.gate.authorize(given, path, 'publish'))
  const user = given.kind === 'user' ? given.principal.key : undefined
  const owner = { domain: domainId, client: clientKey ?? undefined, user }
  const acknowledges = url.searchParams.get('ack') === '1'
  return { path, rest: named.rest, wanted, acknowledges, credentials, subscribe, clientKey, owner }
}

/** Checks the credentials with each call. */
function credentialsOf(request: IncomingMessage, url: URL, deps: OpeningDeps): () => Promise<MessageCredentials> {
  const header = request.headers.authorization
  const { scheme = '' } = parseAuthorization(header) ?? {}
  const texts = {
    // Older clients send the bare secret.
    header: header === undefined || SCHEMES.has(scheme) ? header : `Client ${header}`,
    query: url.searchParams.get('authorization') ?? undefined,
    certificate: () => peerCertificateOf(request.socket),
    origin: () => ({ address: deps.addressOf(request), requestId: randomUUID() }),
  }
  return async () => await readCredentials(texts, deps)
}

/** The path of a request without its query, still encoded. Throws `malformed`. */
export function pathOf(request: IncomingMessage): string {
  return requestUrl(request).pathname
}

/** `//` begins a host where a URL is relative, and is a path in a request (RFC 9112 section 3.2.1). */
function requestUrl(request: IncomingMessage): URL {
  const target = request.url ?? '/'
  const url = URL.parse(target.startsWith('/') ? `http://host${target}` : target)
  if (url === null) throw new ServiceError('malformed', 'the path is not valid')
  return url
}
