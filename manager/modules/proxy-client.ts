/** What the manager asks of the module proxy, over HTTP. */
import { X509Certificate } from 'node:crypto'
import type { Secret } from '#core/config/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { TransferClient, discard } from '#core/transfer/index.ts'
import type { RegistryLogin, Answer, Method, RequestBody } from '#core/transfer/index.ts'
import { dialPinned } from '#proto/index.ts'
import type { ModulePolicy } from './policies.ts'

/** What a reference stands for now. */
export type ResolvedReference = {
  digest: string
  sizeBytes: number
  reference: string
  stale: boolean
  signed: boolean
  signatureProblem: string
}

/** A module in the proxy's cache. */
export type ProxiedModule = { digest: string; sizeBytes: number; exports: unknown[] | undefined }

export type PushTarget = {
  reference: string
  /** Null: the platform. */
  domainId: string | null
  /** At the registry; undefined: those that the proxy is configured with. */
  login: RegistryLogin | undefined
}

export type PushedArtifact = {
  /** With the digest of the manifest. */
  reference: string
  /** Whose login the registry was shown where it asked for one. */
  login: 'own' | 'configured' | 'none'
}

export type PushedBytes = { sizeBytes: number; read(): AsyncIterable<Uint8Array> }

/** A registry may be slow; a start waits no longer. */
const RESOLVE_DEADLINE_MS = 30_000
/** The proxy's own deadline of a pull is ten minutes. */
const PULL_DEADLINE_MS = 11 * 60_000
const CACHE_DEADLINE_MS = 3_000
const STALL_MS = 30_000
/** References that are resolved at a time, and what else is asked meanwhile. */
const MAX_SOCKETS = 160
/** Exports of one hundred modules. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024

type Request = {
  method: Method
  path: string
  /** What a refusal is about. */
  subject: string
  deadlineMs: number
  json?: object
  body?: RequestBody
  headers?: Record<string, string>
}

type StatusAnswer = { modules: { digest: string; size: number; exports?: unknown[] }[] }
type ResolveAnswer = {
  digest: string
  size: number
  reference: string
  stale: boolean
  signed: boolean
  signature_problem: string
}

/**
 * Over TLS the proxy shows the certificate of the manager. What goes wrong is `unprocessable` when it is about the
 * reference or the module, `timeout` or `unavailable` when proxy or registry are away.
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

  /** What the proxy has of these. What they export is read and sent where it is asked for. */
  async describe(digests: readonly string[], withExports: boolean): Promise<ProxiedModule[]> {
    const found = await this.#ask<StatusAnswer>({
      method: 'POST',
      path: '/modules/status',
      subject: 'the cache of the proxy',
      deadlineMs: CACHE_DEADLINE_MS,
      json: { digests, exports: withExports },
    })
    return found.modules.map(({ digest, size, exports }) => ({ digest, sizeBytes: size, exports }))
  }

  async remove(digest: string): Promise<void> {
    await this.#ask({ method: 'DELETE', path: `/modules/${digest}`, subject: digest, deadlineMs: CACHE_DEADLINE_MS })
  }

  /** The reference with the digest of the manifest, and whose login the registry was shown. */
  async push({ reference, domainId, login }: PushTarget, body: PushedBytes): Promise<PushedArtifact> {
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
      const value = parse(await this.#client.readBody(answer, MAX_ANSWER_BYTES))
      if (answer.status < 300) return value as T
      throw refusalOf(answer, value, subject)
    } catch (error) {
      if (error instanceof Refused) throw error
      if (late.aborted)
        throw new ServiceError('timeout', `${subject}: the registry did not answer in time`, { cause: error })
      // What is said of a connection is for the log: it names addresses of ours.
      const message = `${subject}: the module proxy cannot be reached`
      throw new ServiceError('unavailable', message, { cause: error, retryAfterSeconds: 5 })
    }
  }
}

/** What the proxy said, apart from what a connection says. */
class Refused extends ServiceError {}

function refusalOf({ status }: Answer, value: unknown, subject: string): Refused {
  const message = `${subject}: ${sentenceOf(value)}`
  if (status === 504) return new Refused('timeout', `${subject}: the registry did not answer in time`)
  if (status >= 500) return new Refused('unavailable', message, { retryAfterSeconds: 5 })
  return new Refused('unprocessable', message)
}

function sentenceOf(value: unknown): string {
  const { message } = (value ?? {}) as { message?: unknown }
  return typeof message === 'string' ? message : 'the module proxy refused it'
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

/** The credentials of a registry, which the proxy shows to it alone and forgets. */
function registryHeaders(login: PushTarget['login']): Record<string, string> {
  if (login === undefined) return {}
  const text = `${login.username}:${login.password.reveal()}`
  return { 'registry-authorization': `Basic ${Buffer.from(text).toString('base64')}` }
}

function pemOf(certificate: Buffer): string {
  return new X509Certificate(certificate).toString()
}
