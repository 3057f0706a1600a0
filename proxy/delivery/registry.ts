/**
 * The pull half of the OCI distribution specification: `/v2/`, manifests and blobs, with a ticket. A ticket is for one
 * module, and gives access only to the repository of that module: its manifests, its config, its layers, and its signatures.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { ServiceError, kindOf, presentError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import { digestOf, isDigest } from '#core/digest.ts'
import { refuseTransfer, sendBytes } from '#core/transfer/index.ts'
import { UPLOAD_TAG, parsePullPath, repositoryNameOf } from '#proto/index.ts'
import type { PullPath, TicketGrant } from '#proto/index.ts'
import type { ModuleSource } from '../source/index.ts'
import type { ProxyAccess } from './access.ts'

export type DeliveryLimits = {
  /**
   * Concurrent downloads, including those that wait for a pull; beyond it a request is refused, and the worker retries.
   */
  maxStreams: number
  /** Milliseconds in which a caller must read one piece. */
  pieceDeadlineMs: number
  /** Milliseconds that a request waits for a module that is still being pulled; then the caller must retry. */
  pullWaitMs: number
}

export type RegistryDeps = { source: ModuleSource; access: ProxyAccess; limits: DeliveryLimits; logger: Logger }

/** Largest share of all streams per reader, which can be a worker of a domain. */
const SHARE_OF_READER = 0.5
const RETRY_AFTER_SECONDS = 1
const MISSING = {
  name: 'NAME_UNKNOWN',
  manifests: 'MANIFEST_UNKNOWN',
  blobs: 'BLOB_UNKNOWN',
  referrers: 'MANIFEST_UNKNOWN',
} as const
const INDEX_TYPE = 'application/vnd.oci.image.index.v1+json'

type Sendable = { sizeBytes: number; digest: string; mediaType: string; read: Read; close?: () => Promise<void> }
type Read = (into: Buffer, position: number) => Promise<number>

export class Registry {
  readonly #deps: RegistryDeps
  readonly #slots: Slots

  constructor(deps: RegistryDeps) {
    this.#deps = deps
    this.#slots = new Slots({
      what: 'modules being sent',
      max: deps.limits.maxStreams,
      share: Math.ceil(deps.limits.maxStreams * SHARE_OF_READER),
      per: 'reader',
      retryAfterSeconds: RETRY_AFTER_SECONDS,
      shareKind: 'unavailable',
    })
  }

  /** Handles a GET or HEAD below `/v2/`. Never rejects. */
  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = parsePullPath(request.url?.split('?', 1)[0] ?? '')
    try {
      const grant = await this.#deps.access.requireTicket(request.headers.authorization)
      const release = await this.#slots.take(grant.reader)
      try {
        await this.#serve(request, response, grant, path)
      } catch (error) {
        // A 401 of the registry must not reach the caller, who would request another ticket.
        if (kindOf(error) !== 'unauthenticated') throw error
        throw new ServiceError('forbidden', presentError(error).message, { cause: error })
      } finally {
        release()
      }
    } catch (error) {
      this.#report(error, request)
      refuseTransfer(response, error, { missing: MISSING[path?.kind ?? 'name'], challenge: challengeFor(request) })
    }
  }

  async #serve(
    request: IncomingMessage,
    response: ServerResponse,
    grant: TicketGrant,
    path: PullPath | undefined,
  ): Promise<void> {
    if (path === undefined) {
      if (!isBase(request.url)) throw new ServiceError('not_found', 'no such path')
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': '2' }).end('{}')
      return
    }
    if (path.name !== repositoryNameOf(grant)) throw new ServiceError('forbidden', 'the ticket is for another module')
    const found = await this.#within(this.#find(grant, path))
    try {
      const headers = { 'content-type': found.mediaType, 'docker-content-digest': found.digest }
      await sendBytes(request, response, found, headers, { stallMs: this.#deps.limits.pieceDeadlineMs })
    } finally {
      await found.close?.()
    }
  }

  /** Longer work continues without the caller, who must retry. */
  async #within(work: Promise<Sendable>): Promise<Sendable> {
    const late = Promise.withResolvers<'late'>()
    const timer = setTimeout(() => late.resolve('late'), this.#deps.limits.pullWaitMs)
    try {
      const found = await Promise.race([work, late.promise])
      if (found !== 'late') return found
    } finally {
      clearTimeout(timer)
    }
    work.then(
      (unused) => unused.close?.(),
      () => undefined,
    )
    throw new ServiceError('unavailable', 'the module is still being pulled; retry later', {
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    })
  }

  #find(grant: TicketGrant, path: PullPath): Promise<Sendable> {
    switch (path.kind) {
      case 'blobs':
        return this.#blob(grant, path)
      case 'manifests':
        return this.#manifest(grant, path)
      case 'referrers':
        return this.#referrers(grant, path)
    }
  }

  async #blob({ digest, reference }: TicketGrant, path: PullPath): Promise<Sendable> {
    const { source } = this.#deps
    const wanted = path.reference
    if (!isDigest(wanted))
      throw new ServiceError('not_found', 'the digest of a blob must be sha256:<64 hexadecimal digits>')
    if (wanted === digest) return fromFile(await source.open(digest, reference))
    if (reference !== '') {
      const part = (await source.openPart(reference, wanted)) ?? (await this.#partOfReferrer(reference, wanted))
      if (part !== undefined) return fromFile(part)
    } else {
      const { config } = await source.artifactOfUpload(digest)
      if (wanted === config.digest) return fromMemory(config)
    }
    throw new ServiceError('forbidden', 'the ticket is for another module')
  }

  async #manifest({ digest, reference }: TicketGrant, { reference: wanted }: PullPath): Promise<Sendable> {
    const { source } = this.#deps
    if (reference === '') {
      const { manifest } = await source.artifactOfUpload(digest)
      if (wanted === manifest.digest || wanted === UPLOAD_TAG) return fromMemory(manifest)
    } else {
      const manifests = await source.manifests(reference)
      const [pinned] = manifests
      const named = isDigest(wanted) ? wanted : await source.locateTag(reference, wanted)
      const found = isDigest(wanted) ? manifests.find((one) => one.digest === named) : pinned
      if (found !== undefined && found.digest === named) return fromMemory(found)
      const signature = await this.#referrer(reference, wanted)
      if (signature !== undefined) return fromMemory(signature)
    }
    throw new ServiceError('forbidden', 'the ticket is for another module')
  }

  /** OCI distribution, "Listing Referrers": signatures of the artifact, and an empty index for an upload and for other manifests. */
  async #referrers({ reference }: TicketGrant, { reference: subject }: PullPath): Promise<Sendable> {
    if (!isDigest(subject)) throw new ServiceError('not_found', 'the digest must be sha256:<64 hexadecimal digits>')
    const isArtifact = reference !== '' && reference.endsWith(`@${subject}`)
    const { entries } = isArtifact ? await this.#deps.source.referrers(reference) : { entries: [] }
    const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: INDEX_TYPE, manifests: entries }))
    return fromMemory({ bytes, digest: digestOf(bytes), mediaType: INDEX_TYPE })
  }

  /** The manifest of a signature of the artifact. */
  async #referrer(reference: string, wanted: string): Promise<Manifest | undefined> {
    if (!isDigest(wanted)) return undefined
    const { source } = this.#deps
    const { entries } = await source.referrers(reference)
    if (!entries.some(({ digest }) => digest === wanted)) return undefined
    const [manifest] = await source.manifests(pinnedAt(reference, wanted))
    return manifest
  }

  async #partOfReferrer(reference: string, wanted: string): Promise<OpenPart | undefined> {
    const { source } = this.#deps
    for (const { digest } of (await source.referrers(reference)).entries) {
      const part = await source.openPart(pinnedAt(reference, digest), wanted)
      if (part !== undefined) return part
    }
    return undefined
  }

  #report(error: unknown, { url }: IncomingMessage): void {
    const { logger } = this.#deps
    if (kindOf(error) === 'internal') logger.error({ err: error, url }, 'failed to serve a module')
    else logger.info({ url, reason: error instanceof Error ? error.message : '' }, 'refused to serve a module')
  }
}

type Manifest = Awaited<ReturnType<ModuleSource['manifests']>>[number]
type OpenPart = Awaited<ReturnType<ModuleSource['open']>>

/** The same repository at another manifest. */
function pinnedAt(reference: string, manifestDigest: string): string {
  return `${reference.slice(0, reference.indexOf('@'))}@${manifestDigest}`
}

const isBase = (url: string | undefined) => url === '/v2/' || url === '/v2'

function fromFile({ handle, sizeBytes, digest }: Awaited<ReturnType<ModuleSource['open']>>): Sendable {
  return {
    sizeBytes,
    digest,
    mediaType: 'application/octet-stream',
    read: async (into, position) => (await handle.read(into, 0, into.length, position)).bytesRead,
    close: () => handle.close(),
  }
}

function fromMemory({ bytes, digest, mediaType }: { bytes: Buffer; digest: string; mediaType: string }): Sendable {
  return {
    sizeBytes: bytes.length,
    digest,
    mediaType,
    read: (into, position) => Promise.resolve(bytes.copy(into, 0, position)),
  }
}

/** Standard tools need a realm; its answer says how to get tickets. */
function challengeFor({ headers: { host = '' }, socket }: IncomingMessage): string {
  const scheme = 'encrypted' in socket ? 'https' : 'http'
  const shown = /^[A-Za-z0-9.:[\]-]{1,255}$/.test(host) ? host : 'proxy.invalid'
  return `Bearer realm="${scheme}://${shown}/token",service="skein"`
}
