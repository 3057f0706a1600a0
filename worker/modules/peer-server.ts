/**
 * Gives modules of the cache to workers of the same site, those that are still on their way included, in the way of the proxy.
 * Who asks shows the ticket of its own assignment, and over TLS the certificate of the worker that the ticket names.
 */
import { createServer } from 'node:http'
import type { IncomingMessage, Server, ServerOptions, ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { bearerTokenOf } from '#core/authorization.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs } from '#core/time.ts'
import { refuseTransfer, sendBytes } from '#core/transfer/index.ts'
import { parsePullPath, repositoryNameOf } from '#proto/index.ts'
import type { ModuleCache, SharedModule } from './module-cache.ts'
import type { SiteTrust } from './site-trust.ts'

export type PeerServerDeps = {
  host: string
  port: number
  trust: SiteTrust
  modules: ModuleCache
  logger: Logger
  limits?: PeerLimits
}

export type PeerLimits = {
  /** Modules at a time; one more is refused, and the worker asks another one or the source. */
  maxStreams: number
  /** Milliseconds that one waits for a module that the manager has told this worker to get, and that it has not heard of yet. */
  graceMs: number
  /** Milliseconds that a reader may leave one piece untaken. */
  pieceDeadlineMs: number
}

export const PEER_LIMITS: PeerLimits = { maxStreams: 16, graceMs: 3_000, pieceDeadlineMs: 30_000 }

/** Requests have a path, a ticket and nothing else. */
const HTTP_OPTIONS: ServerOptions = {
  maxHeaderSize: 16 * 1024,
  headersTimeout: 10_000,
  requestTimeout: 10_000,
  keepAliveTimeout: 5_000,
}
const MAX_CONNECTIONS = 128

export class PeerServer {
  readonly #deps: Required<PeerServerDeps>
  readonly #server: Server
  readonly #closing = new AbortController()
  readonly #unfollow: () => void
  #streams = 0

  private constructor(deps: PeerServerDeps) {
    this.#deps = { limits: PEER_LIMITS, ...deps }
    const answer = (request: IncomingMessage, response: ServerResponse) => void this.#answer(request, response)
    if (deps.trust.isTls) {
      const server = createTlsServer({ ...HTTP_OPTIONS, requestCert: true, rejectUnauthorized: true }, answer)
      this.#unfollow = deps.trust.follow((certificates) => server.setSecureContext(certificates))
      this.#server = server
    } else {
      this.#server = createServer(HTTP_OPTIONS, answer)
      this.#unfollow = () => undefined
    }
    this.#server.maxConnections = MAX_CONNECTIONS
  }

  /** Throws `unavailable` when the port is taken. */
  static async start(deps: PeerServerDeps): Promise<PeerServer> {
    const server = new PeerServer(deps)
    await server.#listen()
    return server
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  async close(): Promise<void> {
    this.#closing.abort(new ServiceError('unavailable', 'the worker is stopping'))
    this.#unfollow()
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    this.#server.closeAllConnections()
    await closed
  }

  #listen(): Promise<void> {
    const { host, port } = this.#deps
    return new Promise((resolve, reject) => {
      this.#server.once('error', (cause) => {
        const address = `${host.includes(':') ? `[${host}]` : host}:${port}`
        const message = `modules cannot be shared on ${address}: is it taken? Set SKEIN_WORKER_PEER_PORT to another port`
        reject(new ServiceError('unavailable', message, { cause }))
      })
      this.#server.listen({ host, port }, resolve)
    })
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { limits, logger } = this.#deps
    try {
      const digest = this.#requireAsker(request)
      if (this.#streams >= limits.maxStreams) {
        throw new ServiceError('rate_limited', `${limits.maxStreams} modules are being given already`)
      }
      this.#streams += 1
      try {
        await this.#give(request, response, digest)
      } finally {
        this.#streams -= 1
      }
    } catch (error) {
      if (kindOf(error) === 'internal') logger.error({ err: error }, 'failed to send a module to a worker of the site')
      refuseTransfer(response, error, { missing: 'BLOB_UNKNOWN', challenge: 'Bearer service="skein"' })
    }
  }

  async #give(request: IncomingMessage, response: ServerResponse, digest: string): Promise<void> {
    const shared = await this.#untilShared(response, digest)
    if (shared === undefined) throw new ServiceError('not_found', 'the module is not here')
    try {
      const bytes = {
        sizeBytes: shared.sizeBytes,
        read: (into: Buffer, position: number) => this.#readShared(shared, response, into, position),
      }
      const headers = { 'content-type': 'application/octet-stream', 'docker-content-digest': digest }
      await sendBytes(request, response, bytes, headers, { stallMs: this.#deps.limits.pieceDeadlineMs })
    } finally {
      await shared.close()
    }
  }

  /** An assignment of this worker may still be on its way while the one that came after it is there already. */
  async #untilShared(response: ServerResponse, digest: string): Promise<SharedModule | undefined> {
    const { modules, limits } = this.#deps
    const endMs = monotonicMs() + limits.graceMs
    for (;;) {
      const { news } = modules
      const shared = await modules.share(digest)
      const restMs = endMs - monotonicMs()
      if (shared !== undefined || restMs <= 0 || response.destroyed || this.#closing.signal.aborted) return shared
      await within(news, restMs)
    }
  }

  /** What is there, or waits until more is. */
  async #readShared(shared: SharedModule, response: ServerResponse, into: Buffer, position: number): Promise<number> {
    for (;;) {
      this.#closing.signal.throwIfAborted()
      const { news } = this.#deps.modules
      const size = Math.min(shared.readableBytes() - position, into.length)
      if (size > 0) return (await shared.handle.read(into, 0, size, position)).bytesRead
      if (response.destroyed) return 0
      await news
    }
  }

  /** The digest of the module that the asker may have. Throws `unauthenticated`, `forbidden`, `not_found`. */
  #requireAsker({ method, url, headers, socket }: IncomingMessage): string {
    const { trust } = this.#deps
    const ticket = bearerTokenOf(headers.authorization) ?? ''
    const grant = trust.verifyTicket(ticket, Math.floor(Date.now() / 1000))
    if (grant === undefined) throw new ServiceError('unauthenticated', 'the ticket is missing, or has expired')
    const worker = trust.isTls ? String((socket as TLSSocket).getPeerCertificate().subject?.CN) : undefined
    if (worker === undefined ? !grant.reader.startsWith('worker:') : grant.reader !== `worker:${worker}`) {
      throw new ServiceError('forbidden', 'the ticket is that of another reader')
    }
    const path = parsePullPath(url ?? '')
    if (path?.kind !== 'blobs' || (method !== 'GET' && method !== 'HEAD')) {
      throw new ServiceError('not_found', 'a worker gives blobs alone')
    }
    if (path.name !== repositoryNameOf(grant) || path.reference !== grant.digest) {
      throw new ServiceError('forbidden', 'the ticket is of another module')
    }
    return grant.digest
  }
}

/** Resolves when it happens or the time is over. */
async function within(outcome: Promise<void>, waitMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, waitMs)))
  try {
    await Promise.race([outcome, late])
  } finally {
    clearTimeout(timer)
  }
}
