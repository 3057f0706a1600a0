/** One `Fetch` of a module, from whoever serves it: its chunks as they come, each within a deadline. */
import { status } from '@grpc/grpc-js'
import type { ClientOptions, Metadata, ServiceError as GrpcError } from '@grpc/grpc-js'
import { ServiceError } from '#core/errors/index.ts'
import type { ModuleService, ServiceClient } from '#proto/index.ts'
import type { WantedModule } from './wanted.ts'

/** Chunks are 256 KiB. */
const MAX_MESSAGE_BYTES = 1024 * 1024
/**
 * How much may be under way to us (RFC 9113 section 5.2). The 64 KiB that a connection begins with cost a round trip each:
 * 640 KB/s from a source 100 ms away, and many small reads from one that is near. What is under way is memory, copied more
 * than once and collected late: with 512 KiB a worker on a busy machine grew by 20 MiB, with this by 4 to 9.
 */
const WINDOW_BYTES = 128 * 1024

export const CHANNEL_OPTIONS: Partial<ClientOptions> = {
  'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
  'grpc-node.flow_control_window': WINDOW_BYTES,
}

export type FetchOrder = {
  wanted: WantedModule
  offset: number
  metadata: Metadata
  /** Until the first chunk, and between two; empty ones count. */
  firstMs: number
  chunkMs: number
}

/** Throws `timeout`, `not_found`, `unprocessable`, `forbidden`, and `unavailable` for everything else. */
export async function* fetchStream(
  client: ServiceClient<typeof ModuleService>,
  { wanted, offset, metadata, firstMs, chunkMs }: FetchOrder,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const { digest, reference, ticket } = wanted
  const call = client.fetch({ digest, offset: BigInt(offset), reference, ticket }, { metadata })
  // The loop below reports errors while it reads; one that comes after it, by our own cancellation, is no news.
  call.on('error', () => undefined)
  let lateAfterMs: number | undefined
  const giveUpAfter = (waitMs: number) =>
    setTimeout(() => {
      lateAfterMs = waitMs
      call.cancel()
    }, waitMs)
  let timer = giveUpAfter(firstMs)
  const onAbort = () => call.cancel()
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    signal.throwIfAborted()
    for await (const { data } of call as AsyncIterable<{ data: Uint8Array }>) {
      clearTimeout(timer)
      yield data
      timer = giveUpAfter(chunkMs)
    }
  } catch (error) {
    if (lateAfterMs !== undefined) throw new ServiceError('timeout', `${digest}: no data for ${lateAfterMs} ms`)
    throw explain(error, digest)
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', onAbort)
    call.cancel()
  }
}

function explain(error: unknown, digest: string): unknown {
  const { code, details } = error as Partial<GrpcError>
  if (code === undefined) return error
  const message = `module ${digest}: ${details ?? 'the source failed'}`
  switch (code) {
    case status.NOT_FOUND:
    case status.OUT_OF_RANGE:
      return new ServiceError('not_found', message, { cause: error })
    case status.INVALID_ARGUMENT:
    case status.FAILED_PRECONDITION:
      return new ServiceError('unprocessable', message, { cause: error })
    case status.UNAUTHENTICATED:
    case status.PERMISSION_DENIED:
      return new ServiceError('forbidden', message, { cause: error })
    default:
      return new ServiceError('unavailable', message, { cause: error })
  }
}
