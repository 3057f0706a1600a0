/** A proxy with a folder of its own and the two calls of a worker, for tests. */
import { createHash } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { create } from '@bufbuild/protobuf'
import type { MessageInitShape } from '@bufbuild/protobuf'
import { Metadata, credentials } from '@grpc/grpc-js'
import { readConfig } from '#core/config/index.ts'
import { createLogger } from '#core/logging/index.ts'
import {
  ModuleService,
  PushRequestSchema,
  RegistryService,
  createServiceClient,
  createTicketSigner,
} from '#proto/index.ts'
import type { PushHeaderSchema, ResolveRequestSchema, ResolveResponse, ServiceClient } from '#proto/index.ts'
import { PROXY_SETTINGS, startProxy } from '#proxy/index.ts'
import type { ProxyLimits } from '#proxy/index.ts'

export type RunningProxy = AsyncDisposable & {
  address: string
  dataDir: string
  resolve(reference: string, asker?: MessageInitShape<typeof ResolveRequestSchema>): Promise<ResolveResponse>
  /** What managers ask of the cache and of registries. */
  registries: ServiceClient<typeof RegistryService>
  /** Pushes as a manager does; gives the pinned reference. */
  push(header: MessageInitShape<typeof PushHeaderSchema>, bytes: Buffer): Promise<string>
  /** Fetches the module and gives its bytes; rejects as the stream does. */
  fetch(digest: string, reference?: string, offset?: number): Promise<Buffer>
  /** The chunks of a stream as they come. */
  chunks(digest: string, reference: string): AsyncIterable<{ data: Uint8Array }>
  /** Both, as a worker does it: resolves, fetches by digest, checks the digest. */
  bring(reference: string): Promise<Buffer>
  /** Stops the proxy and leaves its folder. */
  stop(): Promise<void>
}

export type ProxySetup = {
  environment?: Record<string, string>
  limits?: Partial<ProxyLimits>
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
}
const CALL_DEADLINE_MS = 60_000
/** What the manager of these tests and the proxy share. */
export const PROXY_TOKEN = 'a token of tests and proxy'
export const WORKER_ID = '0197a1a2-0000-7000-8000-000000000001'
const signer = createTicketSigner(PROXY_TOKEN)
const TICKET_SECONDS = 3600

/** The metadata of a manager. */
export function asManager(token = PROXY_TOKEN): Metadata {
  const metadata = new Metadata()
  metadata.set('authorization', `Bearer ${token}`)
  return metadata
}

/** As a manager gives it with an assignment. */
export function ticketFor(digest: string, reference: string, lifeSeconds = TICKET_SECONDS): string {
  return signer.sign({ workerId: WORKER_ID, digest, reference }, Math.floor(Date.now() / 1000) + lifeSeconds)
}

const PUSHED_PART_BYTES = 100_000

async function pushTo(
  registries: ServiceClient<typeof RegistryService>,
  header: MessageInitShape<typeof PushHeaderSchema>,
  bytes: Buffer,
): Promise<string> {
  const call = registries.push({ deadlineMs: CALL_DEADLINE_MS, metadata: asManager() })
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`
  const say = (part: MessageInitShape<typeof PushRequestSchema>['part']) =>
    part !== undefined && call.write(create(PushRequestSchema, { part }))
  say({ case: 'header', value: { digest, sizeBytes: BigInt(bytes.length), ...header } })
  for (let offset = 0; offset < bytes.length; offset += PUSHED_PART_BYTES) {
    say({ case: 'data', value: bytes.subarray(offset, offset + PUSHED_PART_BYTES) })
  }
  call.end()
  let reference = ''
  for await (const answer of call as AsyncIterable<{ reference: string }>) reference = answer.reference
  return reference
}

export async function runProxy({ environment = {}, limits = {}, dataDir }: ProxySetup = {}): Promise<RunningProxy> {
  const folder = dataDir ?? (await mkdtemp(join(tmpdir(), 'skein-proxy-')))
  const config = readConfig(PROXY_SETTINGS, {
    SKEIN_DATA_DIR: folder,
    SKEIN_PROXY_PORT: '0',
    SKEIN_PROXY_TOKEN: PROXY_TOKEN,
    ...environment,
  })
  const proxy = await startProxy({
    config,
    logger: createLogger({ name: 'proxy', level: 'silent' }),
    limits: { ...PATIENT, ...limits },
  })
  const client = createServiceClient(ModuleService, proxy.address, credentials.createInsecure())

  const registries = createServiceClient(RegistryService, proxy.address, credentials.createInsecure())

  const resolve: RunningProxy['resolve'] = (reference, asker = {}) =>
    client.resolve({ ...asker, reference }, { deadlineMs: CALL_DEADLINE_MS, metadata: asManager() })
  const fetch: RunningProxy['fetch'] = async (digest, reference = '', offset = 0) => {
    const pieces: Uint8Array[] = []
    const request = { digest, reference, offset: BigInt(offset), ticket: ticketFor(digest, reference) }
    const stream = client.fetch(request, { deadlineMs: CALL_DEADLINE_MS })
    for await (const { data } of stream as AsyncIterable<{ data: Uint8Array }>) pieces.push(data)
    return Buffer.concat(pieces)
  }
  async function stop(): Promise<void> {
    client.close()
    registries.close()
    await proxy.stop()
  }
  return {
    address: proxy.address,
    dataDir: folder,
    resolve,
    fetch,
    registries,
    push: (header, bytes) => pushTo(registries, header, bytes),
    chunks: (digest, reference) =>
      client.fetch({ digest, reference, ticket: ticketFor(digest, reference) }, { deadlineMs: CALL_DEADLINE_MS }),
    stop,
    async bring(reference) {
      const found = await resolve(reference)
      const bytes = await fetch(found.digest, found.reference)
      const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`
      if (digest !== found.digest || BigInt(bytes.length) !== found.sizeBytes)
        throw new Error(`${reference} came with other bytes`)
      return bytes
    },
    async [Symbol.asyncDispose]() {
      await stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}
