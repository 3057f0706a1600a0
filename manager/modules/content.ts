/** The bytes of a module for a caller who can read it: an upload from the database, any other through the proxy. */
import { ServiceError } from '#core/errors/index.ts'
import { Slots } from '#core/slots.ts'
import type { SentBytes } from '#core/transfer/index.ts'
import type { ProxyClient } from './proxy-client.ts'
import type { TicketIssuer } from './tickets.ts'
import type { UploadReader } from './upload-reader.ts'
import type { ModuleUse } from './uses.ts'

/** Modules that are read at the same time, and per domain. */
const MAX_READ = 32
const MAX_READ_PER_DOMAIN = 8
const RETRY_AFTER_SECONDS = 1

/** The caller must close it. */
export type OpenModule = SentBytes & { close: () => void }

export type ModuleContentDeps = { proxy: ProxyClient; tickets: TicketIssuer; uploads: UploadReader }

export class ModuleContent {
  readonly #deps: ModuleContentDeps
  readonly #slots = new Slots({
    what: 'modules being read',
    max: MAX_READ,
    share: MAX_READ_PER_DOMAIN,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  })

  constructor(deps: ModuleContentDeps) {
    this.#deps = deps
  }

  /** Throws `not_found`, `rate_limited`, `unavailable` and, for a module of a registry, the errors of a pull. */
  async open(use: ModuleUse): Promise<OpenModule> {
    const release = await this.#slots.take(use.domainId)
    try {
      if (use.source === 'upload') return { ...(await this.#deps.uploads.bytesOf(use.digest)), close: release }
      return await this.#openProxied(use, release)
    } catch (error) {
      release()
      throw error
    }
  }

  async #openProxied({ digest, reference, domainId }: ModuleUse, release: () => void): Promise<OpenModule> {
    const { proxy, tickets } = this.#deps
    const module = { digest, reference: reference ?? '' }
    const { ticket } = tickets.forReader(domainId, module)
    // The proxy pulls it now, so that a failure is a response and not a broken transfer.
    const sizeBytes = await proxy.sizeOf(module, ticket)
    const closing = new AbortController()
    let source: { pieces: AsyncIterator<Buffer>; piece: Buffer; position: number } | undefined
    return {
      sizeBytes,
      close() {
        closing.abort()
        release()
      },
      async read(into, position) {
        source ??= { pieces: proxy.read(module, ticket, position, closing.signal), piece: Buffer.alloc(0), position }
        if (source.position !== position) throw new Error('a module of the proxy is read in order')
        if (source.piece.length === 0) {
          const next = await source.pieces.next()
          if (next.done === true) throw new ServiceError('unavailable', 'the module proxy sent too few bytes')
          source.piece = next.value
        }
        const copied = source.piece.copy(into)
        source.piece = source.piece.subarray(copied)
        source.position += copied
        return copied
      },
    }
  }
}
