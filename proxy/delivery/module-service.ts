/** `ModuleService` of `proto/cluster/v1/module.proto`: resolves references and streams modules to workers. */
import { createHash } from 'node:crypto'
import type { Hash } from 'node:crypto'
import { create } from '@bufbuild/protobuf'
import { Metadata, status } from '@grpc/grpc-js'
import type { sendUnaryData } from '@grpc/grpc-js'
import { createLru } from '#core/lru.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import { withDeadline } from '#core/time.ts'
import { FetchResponseSchema, ResolveResponseSchema, SignaturePolicy, sendChunk } from '#proto/index.ts'
import type {
  FetchRequest,
  FetchResponse,
  ModuleService,
  ResolveRequest,
  ResolveResponse,
  ServerUnaryCall,
  ServerWritableStream,
  ServiceHandlers,
} from '#proto/index.ts'
import type { OpenBlob } from '../cache/index.ts'
import type { Asker, ModuleSource } from '../module-source.ts'
import type { Callers } from './callers.ts'
import { createSharedPieces } from './shared-pieces.ts'
import { statusOf } from './status.ts'

export type DeliveryLimits = {
  /** Streams at a time; one more is refused, and the worker asks again. */
  maxStreams: number
  /** How long a worker may leave one chunk untaken. */
  chunkDeadlineMs: number
  /** Between empty chunks while the module is still being pulled; workers give up a source that is silent for 30 s. */
  waitingChunkMs: number
}

export type ModuleServiceDeps = { source: ModuleSource; callers: Callers; limits: DeliveryLimits; logger: Logger }

const MAX_VERIFIED = 10_000
/** Of all streams one worker has at the most; it may be a worker of one domain. */
const SHARE_OF_WORKER = 0.5

/** One that this proxy does not know asks for more than it can judge, so it counts as the strictest. */
const POLICIES: Partial<Record<SignaturePolicy, Asker['policy']>> = {
  [SignaturePolicy.UNSPECIFIED]: 'off',
  [SignaturePolicy.OFF]: 'off',
  [SignaturePolicy.WARN]: 'warn',
  [SignaturePolicy.REQUIRE]: 'require',
}

type ResolveCall = ServerUnaryCall<ResolveRequest, ResolveResponse>
type FetchCall = ServerWritableStream<FetchRequest, FetchResponse>

export function moduleServiceHandlers({
  source,
  callers,
  limits,
  logger,
}: ModuleServiceDeps): ServiceHandlers<typeof ModuleService> {
  const slots = new Slots({
    what: 'modules being sent',
    max: limits.maxStreams,
    share: Math.ceil(limits.maxStreams * SHARE_OF_WORKER),
    per: 'worker',
    retryAfterSeconds: 1,
    shareKind: 'unavailable',
  })
  /** Files that were hashed on their way out, by digest: each version once. */
  const verified = createLru<string, string>(MAX_VERIFIED)
  const pieces = createSharedPieces()
  /** Of which one stream is hashing the bytes now; the others need not. */
  const verifying = new Set<string>()

  async function resolve({ metadata, request }: ResolveCall, callback: sendUnaryData<ResolveResponse>): Promise<void> {
    try {
      await callers.requireManager(metadata)
      const { reference, domainId, signaturePolicy, signatureKeys } = request
      const asker = { domainId, policy: POLICIES[signaturePolicy] ?? 'require', keys: signatureKeys }
      const found = await source.resolve(reference, asker)
      callback(null, create(ResolveResponseSchema, { ...found, sizeBytes: BigInt(found.sizeBytes) }))
    } catch (error) {
      report(error, { reference: request.reference })
      callback(statusOf(error))
    }
  }

  async function fetch(call: FetchCall): Promise<void> {
    const giveBack = await slots.take(await callers.requireReader(call.metadata, call.request))
    try {
      const { digest, reference, offset } = call.request
      const blob = await whileSaying(call, source.open(digest, reference))
      try {
        await send(call, blob, offset)
      } finally {
        await blob.handle.close()
      }
    } finally {
      giveBack()
    }
  }

  /** A pull may take minutes: an empty chunk now and then tells the worker that its source is alive. */
  async function whileSaying<T>(call: FetchCall, work: Promise<T>): Promise<T> {
    const timer = setInterval(() => call.cancelled || call.write(create(FetchResponseSchema)), limits.waitingChunkMs)
    try {
      return await work
    } finally {
      clearInterval(timer)
    }
  }

  /** One chunk at a time: the next is read from disk when the connection has taken this one. */
  async function send(call: FetchCall, blob: OpenBlob, offset: bigint): Promise<void> {
    if (offset > BigInt(blob.sizeBytes)) {
      call.emit('error', {
        code: status.OUT_OF_RANGE,
        details: `module has ${blob.sizeBytes} bytes`,
        metadata: new Metadata(),
      })
      return
    }
    const isDue = offset === 0n && verified.get(blob.digest) !== blob.version && !verifying.has(blob.version)
    const hash = isDue ? createHash('sha256') : undefined
    if (isDue) verifying.add(blob.version)
    try {
      await sendPieces(call, blob, Number(offset), hash)
    } finally {
      if (isDue) verifying.delete(blob.version)
    }
  }

  async function sendPieces(call: FetchCall, blob: OpenBlob, offset: number, hash: Hash | undefined): Promise<void> {
    const cancelled = new Promise<'cancelled'>((resolve) => call.once('cancelled', () => resolve('cancelled')))
    for (let position = offset; ;) {
      const piece = await pieces.take(blob, position)
      let isTaken = false
      try {
        if (piece.sizeBytes === 0) break
        position += piece.sizeBytes
        hash?.update(piece.buffer.space.subarray(0, piece.sizeBytes))
        if (call.cancelled) return
        const taken = sendChunk(call, piece.buffer, piece.sizeBytes, (data) => create(FetchResponseSchema, { data }))
        const outcome = await withDeadline(Promise.race([taken, cancelled]), limits.chunkDeadlineMs, 'sending a chunk')
        if (outcome === 'cancelled') return
        isTaken = true
      } finally {
        if (isTaken || piece.sizeBytes === 0) piece.release()
        else piece.abandon()
      }
    }
    if (hash !== undefined) await verify(blob, `sha256:${hash.digest('hex')}`)
    call.end()
  }

  /** A disk may give other bytes than it was given. The worker would notice, and would come back to the same file. */
  async function verify(blob: OpenBlob, digest: string): Promise<void> {
    if (digest === blob.digest) return void verified.set(blob.digest, blob.version)
    await source.discard(blob.digest)
    throw new ServiceError('unavailable', `module ${blob.digest} was damaged in the cache and is dropped; ask again`)
  }

  function report(error: unknown, what: Record<string, string>): void {
    if (kindOf(error) === 'internal') logger.error({ ...what, err: error }, 'module request failed')
    else logger.info({ ...what, reason: error instanceof Error ? error.message : '' }, 'module request refused')
  }

  return {
    resolve(call, callback) {
      void resolve(call, callback)
    },
    fetch(call) {
      fetch(call).catch((error: unknown) => {
        report(error, { digest: call.request.digest, reference: call.request.reference })
        call.emit('error', statusOf(error))
      })
    },
  }
}
