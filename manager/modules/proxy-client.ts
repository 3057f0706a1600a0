/** HTTP client of the module proxy. */
import { X509Certificate } from 'node:crypto'
import type { Secret } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { TransferClient, bodyFrom, discard, rangeFrom, readRefusal } from '#core/transfer/index.ts'
import type { RegistryLogin, TransferResponse, Method, RequestBody } from '#core/transfer/index.ts'
import { dialPinned, repositoryNameOf } from '#proto/index.ts'
import type { TicketGrant } from '#proto/index.ts'
import type { DescribedExport, DescribedImport, ModuleKind } from '#guests/wasm/index.ts'
import type { ModulePolicy } from './policies.ts'

/** The current target of a reference. */
export type ResolvedReference = {
  digest: string
  sizeBytes: number
  reference: string
  stale: boolean
  signed: boolean
  signatureProblem: string
}

/** A module in the proxy's cache. */
export type ProxiedModule = {
  digest: string
  sizeBytes: number
  /** Undefined, like exports and imports: not requested, or unknown. */
  kind: ModuleKind | undefined
  exports: DescribedExport[] | undefined
  imports: DescribedImport[] | undefined
}

/** A module and where it comes from; for an upload, the reference is empty. */
export type ModuleRef = Pick<TicketGrant, 'digest' | 'reference'>

export type PushTarget = {
  reference: string
  /** Null: the platform. */
  domainId: string | null
  /** Credentials for the registry; undefined: those of the proxy's configuration. */
  login: RegistryLogin | undefined
}

export type PushedArtifact = {
  /** Includes the digest of the manifest. */
  reference: string
  /** The credentials that the registry required. */
  login: 'own' | 'configured' | 'none'
}

export type PushBody = { sizeBytes: number; read(): AsyncIterable<Uint8Array> }

/** The start of a task waits this long for a slow registry. */
const RESOLVE_DEADLINE_MS = 30_000
/** The proxy's own deadline of a pull is ten minutes. */
const PULL_DEADLINE_MS = 11 * 60_000
const CACHE_DEADLINE_MS = 3_000
const STALL_MS = 30_000
/** The maximum number of simultaneous requests to the proxy. */
const MAX_SOCKETS = 160
/** This is enough for the exports of 100 modules. */
const MAX_RESPONSE_BYTES = 32 * 1024 * 1024

const FIRST_BYTE = { range: 'bytes=0-0' }

type Request = {
  method: Method
  path: string
  /** The subject of an error message. */
  subject: string
  deadlineMs: number
  json?: object
  body?: RequestBody
  headers?: Record<string, string>
}

type StatusAnswer = {
  modules: {
    digest: string
    size: number
    kind?: ModuleKind
    exports?: DescribedExport[]
    imports?: DescribedImport[]
  }[]
}
type ResolveAnswer = {
  digest: string
  size: number
  reference: string
  stale: boolean
  signed: boolean
  signature_problem: string
}

/**
 * Over TLS the proxy uses the certificate of the manager. Errors are `unprocessable` if they concern the reference or the
 * module, `timeout` or `unavailable` if the proxy or the registry cannot be reached.
 */
export class ProxyClient {
  readonly #client: TransferClient
  readonly #base: string
  readonly #authorization: string

  constructor(address: string, certificate: Buffer | undefined, proxyToken: Secret) {
    const tls = certificate === undefined ? undefined : dialPinned(address, pemOf(certificate)).tls
    this.#client = new TransferClient({
      userAgent: 'skein-manager',
      limits: { headersMs: PULL_DEADLINE_MS, stallMs: STALL_MS },
      maxSocketsPerHost: MAX_SOCKETS,
      dial: () => tls ?? {},
    })
    this.#base = `${tls === undefined ? 'http' : 'https'}://${address}`
    this.#authorization = `Bearer ${proxyToken.reveal()}`
  }

  async resolve(reference: string, domainId: string | null, policy: ModulePolicy): Promise<ResolvedReference> {
    const { signatures, keys } = policy
    const found = await this.#ask<ResolveAnswer>({
      method: 'POST',
      path: '/modules/resolve',
      subject: `image_url ${reference}`,
      deadlineMs: RESOLVE_DEADLINE_MS,
      json: { reference, signatures, keys, ...(domainId === null ? {} : { domain_id: domainId }) },
    })
    const { digest, size, stale, signed, signature_problem: signatureProblem } = found
    return { digest, sizeBytes: size, reference: found.reference, stale, signed, signatureProblem }
  }

  /** Resolves when the module is in the proxy's cache. */
  async pull(digest: string, reference: string): Promise<void> {
    const json = { digest, reference }
    await this.#ask({ method: 'POST', path: '/modules/pull', subject: reference, deadlineMs: PULL_DEADLINE_MS, json })
  }

  /** The modules of these digests in the cache of the proxy. Kind, exports and imports are included on request. */
  async describe(digests: readonly string[], withFacts: boolean): Promise<ProxiedModule[]> {
    const found = await this.#ask<StatusAnswer>({
      method: 'POST',
      path: '/modules/status',
      subject: 'the cache of the proxy',
      deadlineMs: CACHE_DEADLINE_MS,
      json: { digests, exports: withFacts },
    })
    return found.modules.map(({ size, digest, kind, exports, imports }) => ({
      digest,
      sizeBytes: size,
      kind,
      exports,
      imports,
    }))
  }

  async remove(digest: string): Promise<void> {
    await this.#ask({ method: 'DELETE', path: `/modules/${digest}`, subject: digest, deadlineMs: CACHE_DEADLINE_MS })
  }

  /** The reference with the digest of the manifest, and the credentials that were used. */
  async push({ reference, domainId, login }: PushTarget, body: PushBody): Promise<PushedArtifact> {
    const query = new URLSearchParams({ reference, ...(domainId === null ? {} : { domain_id: domainId }) })
    return await this.#ask<PushedArtifact>({
      method: 'PUT',
      path: `/modules?${query.toString()}`,
      subject: reference,
      deadlineMs: PULL_DEADLINE_MS,
      body,
      headers: { 'content-type': 'application/wasm', ...registryHeaders(login) },
    })
  }

  /** The size of a module, once it is in the cache of the proxy. Throws the errors of a pull, and `unavailable` for a slow one. */
  async sizeOf(module: ModuleRef, ticket: string): Promise<number> {
    // The answer to HEAD would have no reason.
    const answer = await this.#blob(module, ticket, FIRST_BYTE, AbortSignal.timeout(PULL_DEADLINE_MS))
    discard(answer)
    const sizeBytes = /\/(\d+)$/.exec(answer.headers['content-range'] ?? '')?.[1]
    if (sizeBytes !== undefined) return Number(sizeBytes)
    throw new ServiceError('unavailable', 'the module proxy returned no size of the module')
  }

  /** The bytes of a module from a position on. */
  async *read(module: ModuleRef, ticket: string, position: number, signal: AbortSignal): AsyncGenerator<Buffer> {
    const answer = await this.#blob(module, ticket, rangeFrom(position), signal)
    yield* bodyFrom(this.#client, answer, position)
  }

  async #blob(
    module: ModuleRef,
    ticket: string,
    range: Record<string, string>,
    signal: AbortSignal,
  ): Promise<TransferResponse> {
    const subject = module.reference === '' ? module.digest : module.reference
    const url = new URL(`/v2/${repositoryNameOf(module)}/blobs/${module.digest}`, this.#base)
    const headers = { authorization: `Bearer ${ticket}`, ...range }
    const answer = await this.#client.get(url, headers, signal).catch((error: unknown) => {
      signal.throwIfAborted()
      throw unreachable(subject, error)
    })
    if (answer.status === 200 || answer.status === 206) return answer
    const text = readRefusal(await this.#client.readBody(answer, MAX_RESPONSE_BYTES))
    throw refusalOf(answer, { message: text }, subject)
  }

  /** Rejects when the proxy does not answer. */
  async isReady(signal: AbortSignal): Promise<boolean> {
    const answer = await this.#client.send('GET', new URL('/ready', this.#base), {}, signal)
    discard(answer)
    return answer.status === 200
  }

  close(): void {
    this.#client.close()
  }

  async #ask<T>({ method, path, subject, deadlineMs, json, body, headers = {} }: Request): Promise<T> {
    const sent = json === undefined ? body : bodyOf(json)
    const all = {
      authorization: this.#authorization,
      ...(json === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    }
    const late = AbortSignal.timeout(deadlineMs)
    try {
      const answer = await this.#client.send(method, new URL(path, this.#base), all, late, sent)
      if (answer.status === 204) {
        discard(answer)
        return undefined as T
      }
      const value = parse(await this.#client.readBody(answer, MAX_RESPONSE_BYTES))
      if (answer.status < 300) return value as T
      throw refusalOf(answer, value, subject)
    } catch (error) {
      if (error instanceof Refused) throw error
      if (late.aborted)
        throw new ServiceError('timeout', `${subject}: the registry did not answer in time`, { cause: error })
      throw unreachable(subject, error)
    }
  }
}

/** An error that the proxy returned, as opposed to an error of the connection. */
class Refused extends ServiceError {}

/** The error of a connection is only logged: it contains internal addresses. */
function unreachable(subject: string, cause: unknown): ServiceError {
  const message = `${subject}: cannot reach the module proxy`
  return new ServiceError('unavailable', message, { cause, retryAfterSeconds: 5 })
}

function refusalOf({ status }: TransferResponse, value: unknown, subject: string): Refused {
  const message = `${subject}: ${sentenceOf(value)}`
  if (status === 504) return new Refused('timeout', `${subject}: the registry did not answer in time`)
  if (status >= 500) return new Refused('unavailable', message, { retryAfterSeconds: 5 })
  return new Refused('unprocessable', message)
}

function sentenceOf(value: unknown): string {
  const { message } = (value ?? {}) as { message?: unknown }
  return typeof message === 'string' ? message : 'the module proxy refused the request'
}

function parse(bytes: Buffer | undefined): unknown {
  try {
    return JSON.parse(bytes?.toString('utf8') ?? '')
  } catch {
    return undefined
  }
}

function bodyOf(json: object): RequestBody {
  const bytes = Buffer.from(JSON.stringify(json))
  return {
    sizeBytes: bytes.length,
    // oxlint-disable-next-line require-await -- a body is an async iterable
    read: async function* () {
      yield bytes
    },
  }
}

/** Credentials for the registry, which the proxy sends only to it and does not store. */
function registryHeaders(login: PushTarget['login']): Record<string, string> {
  if (login === undefined) return {}
  const text = `${login.username}:${login.password.reveal()}`
  return { 'registry-authorization': `Basic ${Buffer.from(text).toString('base64')}` }
}

function pemOf(certificate: Buffer): string {
  return new X509Certificate(certificate).toString()
}
