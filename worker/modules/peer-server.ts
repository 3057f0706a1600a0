/**
 * Serves modules of the cache to workers of the same site, including partial downloads, with the protocol of the proxy.
 * The caller presents the ticket of its assignment, and over TLS the certificate of the worker in the ticket.
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
  /** Concurrent downloads; beyond it a request is refused, and the caller uses another peer or the source. */
  maxStreams: number
  /** Milliseconds that a request waits for a module whose prefetch was requested from this worker and has not started. */
  graceMs: number
  /** Milliseconds in which a caller must read one piece. */
  pieceDeadlineMs: number
}

export const PEER_LIMITS: PeerLimits = { maxStreams: 16, graceMs: 3_000, pieceDeadlineMs: 30_000 }

/** Requests have only a path and a ticket. */
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

  /** Throws `unavailable` if the port is in use. */
  static async start(deps: PeerServerDeps): Promise<PeerServer> {
    const server = new PeerServer(deps)
    await server.#listen()
    return server
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  async close(): Promise<void> {
    this.#closing.abort(new ServiceError('unavailable', 'the worker is shutting down'))
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
        const message = `cannot listen on ${address} for workers of the site: set SKEIN_WORKER_PEER_PORT to a free port`
        reject(new ServiceError('unavailable', message, { cause }))
      })
      this.#server.listen({ host, port }, resolve)
    })
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { limits, logger } = this.#deps
    try {
      const digest = this.#requireWorker(request)
      if (this.#streams >= limits.maxStreams) {
        throw new ServiceError('rate_limited', `${limits.maxStreams} modules are being sent already`)
      }
      this.#streams += 1
      try {
        await this.#sendModule(request, response, digest)
      } finally {
        this.#streams -= 1
      }
    } catch (error) {
      if (kindOf(error) === 'internal') logger.error({ err: error }, 'failed to send a module to a worker of the site')
      refuseTransfer(response, error, { missing: 'BLOB_UNKNOWN', challenge: 'Bearer service="skein"' })
    }
  }

  async #sendModule(request: IncomingMessage, response: ServerResponse, digest: string): Promise<void> {
    const shared = await this.#untilShared(response, digest)
    if (shared === undefined) throw new ServiceError('not_found', 'the module is not cached here')
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

  /** An assignment of this worker can arrive later than the assignment of the caller, which was sent after it. */
  async #untilShared(response: ServerResponse, digest: string): Promise<SharedModule | undefined> {
    const { modules, limits } = this.#deps
    const endMs = monotonicMs() + limits.graceMs
    for (;;) {
      const { news } = modules
      const shared = await modules.share(digest)
      const remainingMs = endMs - monotonicMs()
      if (shared !== undefined || remainingMs <= 0 || response.destroyed || this.#closing.signal.aborted) return shared
      await within(news, remainingMs)
    }
  }

  /** Reads available bytes, or waits for more. */
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

  /** The digest of the module that the caller can read. Throws `unauthenticated`, `forbidden`, `not_found`. */
  #requireWorker({ method, url, headers, socket }: IncomingMessage): string {
    const { trust } = this.#deps
    const ticket = bearerTokenOf(headers.authorization) ?? ''
    const grant = trust.verifyTicket(ticket, Math.floor(Date.now() / 1000))
    if (grant === undefined) throw new ServiceError('unauthenticated', 'the ticket is missing, invalid or expired')
    const worker = trust.isTls ? String((socket as TLSSocket).getPeerCertificate().subject?.CN) : undefined
    if (worker === undefined ? !grant.reader.startsWith('worker:') : grant.reader !== `worker:${worker}`) {
      throw new ServiceError('forbidden', 'the ticket is for another reader')
    }
    const path = parsePullPath(url ?? '')
    if (path?.kind !== 'blobs' || (method !== 'GET' && method !== 'HEAD')) {
      throw new ServiceError('not_found', 'a worker serves only blobs')
    }
    if (path.name !== repositoryNameOf(grant) || path.reference !== grant.digest) {
      throw new ServiceError('forbidden', 'the ticket is for another module')
    }
    return grant.digest
  }
}

/** Resolves when the outcome settles or the time is over. */
async function within(outcome: Promise<void>, waitMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, waitMs)))
  try {
    await Promise.race([outcome, late])
  } finally {
    clearTimeout(timer)
  }
}
