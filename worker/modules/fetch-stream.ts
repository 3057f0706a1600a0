/** One `Fetch` of a module, from whoever serves it: its bytes as they come, each chunk within a deadline. */
import { create } from '@bufbuild/protobuf'
import { status } from '@grpc/grpc-js'
import { ServiceError } from '#core/errors/index.ts'
import { CallError, FetchRequestSchema, ModuleService, readByteStream } from '#proto/index.ts'
import type { Dialling } from '#proto/index.ts'
import type { WantedModule } from './wanted.ts'

export type FetchOrder = {
  address: string
  dialling: Dialling
  wanted: WantedModule
  offset: number
  /** `<worker_id>.<worker_secret>`; undefined: the ticket says enough. */
  bearer: string | undefined
  /** Until the first chunk, and between two; empty ones count. */
  firstMs: number
  chunkMs: number
}

/**
 * What is yielded is overwritten by what follows. Throws `timeout`, `not_found`, `unprocessable`, `forbidden`, and
 * `unavailable` for everything else.
 */
export async function* fetchStream(
  { address, dialling, wanted, offset, bearer, firstMs, chunkMs }: FetchOrder,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const { digest, reference, ticket } = wanted
  const late = new AbortController()
  let waitMs = firstMs
  let isWaiting = true
  const giveUp = () => {
    // While a chunk is looked at nobody waits for the next one.
    if (isWaiting) late.abort(new ServiceError('timeout', `${digest}: no data for ${waitMs} ms`))
    else timer.refresh()
  }
  let timer = setTimeout(giveUp, waitMs)
  const request = create(FetchRequestSchema, { digest, offset: BigInt(offset), reference, ticket })
  const authorization = bearer === undefined ? undefined : `Bearer ${bearer}`
  const method = ModuleService.method.fetch
  try {
    const order = { address, dialling, method, request, authorization }
    for await (const data of readByteStream(order, AbortSignal.any([signal, late.signal]))) {
      isWaiting = false
      yield data
      isWaiting = true
      if (waitMs === chunkMs) timer.refresh()
      else {
        clearTimeout(timer)
        waitMs = chunkMs
        timer = setTimeout(giveUp, waitMs)
      }
    }
  } catch (error) {
    throw error instanceof CallError ? explain(error, digest) : error
  } finally {
    clearTimeout(timer)
  }
}

function explain(error: CallError, digest: string): ServiceError {
  const message = `module ${digest}: ${error.message}`
  switch (error.code) {
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
