/** A proxy with a folder of its own, what managers ask of it, and what workers read from it, for tests. */
import { createHash } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readConfig } from '#core/config/index.ts'
import { PROTOCOL_STATUS, ServiceError } from '#core/errors/index.ts'
import type { ErrorKind } from '#core/errors/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { Readiness } from '#core/readiness/index.ts'
import { createTicketSigner, repositoryNameOf } from '#proto/index.ts'
import { PROXY_SETTINGS, startProxy } from '#proxy/index.ts'
import type { ProxyLimits, ProxyOptions, Uploads } from '#proxy/index.ts'

export type ResolvedAnswer = {
  digest: string
  size: number
  reference: string
  stale: boolean
  signed: boolean
  signature_problem: string
}

export type ModuleRequester = { domain_id?: string; signatures?: 'off' | 'warn' | 'require'; keys?: readonly string[] }
export type PushHeader = {
  reference: string
  digest?: string
  domainId?: string
  sizeBytes?: number
  username?: string
  password?: string
}

export type RunningProxy = AsyncDisposable & {
  address: string
  /** Settings of a manager that uses it. */
  managerEnvironment: Record<string, string>
  dataDir: string
  /** Where uploads come from; changed by tests that have a manager. */
  uploads: Uploads
  resolve(reference: string, requester?: ModuleRequester): Promise<ResolvedAnswer>
  /** What managers ask of the cache and of registries. */
  ask(method: string, path: string, body?: object, token?: string): Promise<unknown>
  /** Pushes as a manager does; gives the pinned reference. */
  push(header: PushHeader, bytes: Buffer, token?: string): Promise<string>
  /** Fetches the module and gives its bytes, as a worker does. */
  fetch(digest: string, reference?: string, offset?: number): Promise<Buffer>
  /** Any GET, with this bearer token. */
  get(path: string, bearer?: string, headers?: Record<string, string>): Promise<Response>
  /** Both, as a worker does it: resolves, fetches by digest, checks the digest. */
  bring(reference: string): Promise<Buffer>
  /** Stops the proxy and leaves its folder. */
  stop(): Promise<void>
}

export type ProxySetup = {
  environment?: Record<string, string>
  limits?: Partial<ProxyLimits>
  tls?: ProxyOptions['tls']
  /** Folder of an earlier proxy. */
  dataDir?: string
}

/** Waits of tests: nothing ends because the machine is busy. Tests of silence have shorter ones. */
export const PATIENT: Partial<ProxyLimits> = {
  headersMs: 30_000,
  stallMs: 30_000,
  retryDelayMs: 5,
  maxRetryAfterMs: 2000,
  pullDeadlineMs: 60_000,
  pullWaitMs: 60_000,
}
const CALL_DEADLINE_MS = 60_000
/** What the manager of these tests and the proxy share. */
export const PROXY_TOKEN = 'a token of tests and proxy'
export const WORKER_ID = '0197a1a2-0000-7000-8000-000000000001'
const signer = createTicketSigner(PROXY_TOKEN)
const TICKET_SECONDS = 3600

/** As a manager gives it with an assignment. */
export function ticketFor(digest: string, reference: string, lifeSeconds = TICKET_SECONDS): string {
  const expiresSeconds = Math.floor(Date.now() / 1000) + lifeSeconds
  return signer.sign({ reader: `worker:${WORKER_ID}`, digest, reference }, expiresSeconds)
}

export function blobPath(digest: string, reference: string): string {
  return `/v2/${repositoryNameOf({ digest, reference })}/blobs/${digest}`
}

/** What an answer refuses, as the product's own error. */
async function refusalOf(answer: Response): Promise<ServiceError> {
  type Refusal = { error?: ErrorKind; message?: string; errors?: { message: string }[] }
  const body = (await answer.json().catch(() => ({}))) as Refusal
  const kinds = Object.keys(PROTOCOL_STATUS) as ErrorKind[]
  const kind = body.error ?? kinds.find((name) => PROTOCOL_STATUS[name].http === answer.status) ?? 'internal'
  return new ServiceError(kind, body.message ?? body.errors?.[0]?.message ?? `status ${answer.status}`)
}

/** One request to a proxy at `address`; rejects with what it refuses. */
export async function callProxy(address: string, path: string, init: RequestInit): Promise<Response> {
  const answer = await fetch(`http://${address}${path}`, { signal: AbortSignal.timeout(CALL_DEADLINE_MS), ...init })
  if (!answer.ok) throw await refusalOf(answer)
  return answer
}

/** What a manager asks for in JSON. */
export async function askProxy(
  address: string,
  method: string,
  path: string,
  body?: object,
  token = PROXY_TOKEN,
): Promise<unknown> {
  const headers = {
    ...(token === '' ? {} : { authorization: `Bearer ${token}` }),
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
  }
  const answer = await callProxy(address, path, {
    method,
    headers,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  return answer.status === 204 ? undefined : await answer.json()
}

export async function resolveAt(
  address: string,
  reference: string,
  { signatures = 'off', keys = [], ...requester }: ModuleRequester = {},
  token?: string,
): Promise<ResolvedAnswer> {
  const body = { reference, signatures, keys, ...requester }
  return (await askProxy(address, 'POST', '/modules/resolve', body, token)) as ResolvedAnswer
}

export async function fetchFrom(address: string, digest: string, reference: string, offset = 0): Promise<Buffer> {
  const headers = {
    authorization: `Bearer ${ticketFor(digest, reference)}`,
    ...(offset === 0 ? {} : { range: `bytes=${offset}-` }),
  }
  const answer = await callProxy(address, blobPath(digest, reference), { headers })
  return Buffer.from(await answer.arrayBuffer())
}

async function pushTo(
  address: string,
  { reference, digest: given, domainId, sizeBytes, username, password }: PushHeader,
  bytes: Buffer,
  token = PROXY_TOKEN,
): Promise<string> {
  const digest = given ?? `sha256:${createHash('sha256').update(bytes).digest('hex')}`
  const query = new URLSearchParams({ reference, digest, ...(domainId === undefined ? {} : { domain_id: domainId }) })
  const login = Buffer.from(`${username}:${password}`).toString('base64')
  const headers = {
    authorization: `Bearer ${token}`,
    'content-type': 'application/wasm',
    ...(username === undefined ? {} : { 'registry-authorization': `Basic ${login}` }),
  }
  const body = new Uint8Array(sizeBytes === undefined ? bytes : bytes.subarray(0, sizeBytes))
  const answer = await callProxy(address, `/modules?${query.toString()}`, { method: 'PUT', headers, body })
  return ((await answer.json()) as { reference: string }).reference
}

export async function runProxy({
  environment = {},
  limits = {},
  dataDir,
  tls,
}: ProxySetup = {}): Promise<RunningProxy> {
  const folder = dataDir ?? (await mkdtemp(join(tmpdir(), 'skein-proxy-')))
  const config = readConfig(PROXY_SETTINGS, {
    SKEIN_DATA_DIR: folder,
    SKEIN_PROXY_PORT: '0',
    SKEIN_PROXY_TOKEN: PROXY_TOKEN,
    ...environment,
  })
  const askRunning: Uploads = (digest, offset, signal) => running.uploads(digest, offset, signal)
  const proxy = await startProxy({
    config,
    logger: createLogger({ name: 'proxy', level: 'silent' }),
    readiness: new Readiness(),
    limits: { ...PATIENT, ...limits },
    ...('SKEIN_PROXY_MANAGER_URL' in environment ? {} : { uploads: askRunning }),
    ...(tls === undefined ? {} : { tls }),
  })
  const { address } = proxy
  const running: RunningProxy = {
    address,
    managerEnvironment: { SKEIN_PROXY_ADDRESS: address, SKEIN_PROXY_TOKEN: PROXY_TOKEN },
    dataDir: folder,
    uploads: () => {
      throw new ServiceError('not_found', 'there is no manager')
    },
    resolve: (reference, requester) => resolveAt(address, reference, requester),
    ask: (method, path, body, token) => askProxy(address, method, path, body, token),
    push: (header, bytes, token) => pushTo(address, header, bytes, token),
    fetch: (digest, reference = '', offset) => fetchFrom(address, digest, reference, offset),
    get: (path, bearer, headers = {}) =>
      fetch(`http://${address}${path}`, {
        headers: { ...headers, ...(bearer === undefined ? {} : { authorization: `Bearer ${bearer}` }) },
        signal: AbortSignal.timeout(CALL_DEADLINE_MS),
      }),
    stop: () => proxy.stop(),
    async bring(reference) {
      const found = await running.resolve(reference)
      const bytes = await running.fetch(found.digest, found.reference)
      const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`
      if (digest !== found.digest || bytes.length !== found.size) throw new Error(`${reference} came with other bytes`)
      return bytes
    },
    async [Symbol.asyncDispose]() {
      await proxy.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
  return running
}
