/** One GET of a module from its source or a peer: its bytes as a stream, from an offset. */
import { ServiceError } from '#core/errors/index.ts'
import { bodyFrom, discard, rangeFrom, readRefusal, retryAfterMs } from '#core/transfer/index.ts'
import type { TransferResponse, TransferClient } from '#core/transfer/index.ts'
import { formatPullPath, repositoryNameOf } from '#proto/index.ts'
import type { ModuleRequest } from './module-request.ts'

export type FetchOrder = {
  client: TransferClient
  /** host:port */
  address: string
  isTls: boolean
  wanted: ModuleRequest
  offset: number
  /** Offset behind the last byte; undefined: all. A server without ranges sends all in any case. */
  end?: number | undefined
}

/** The answer has begun and no bytes have arrived yet. */
export const NOTHING = new Uint8Array(0)

const MAX_REFUSAL_BYTES = 16 * 1024

/**
 * Yields `NOTHING` when the answer has begun, then the bytes. Throws `timeout`, `not_found`, `unprocessable`,
 * `forbidden`, and `unavailable` for other errors, with `retryAfterSeconds` if the server sends it.
 */
export async function* fetchModule(
  { client, address, isTls, wanted, offset, end }: FetchOrder,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const { digest, ticket } = wanted
  const path = formatPullPath({ name: repositoryNameOf(wanted), kind: 'blobs', reference: digest })
  const url = new URL(`${isTls ? 'https' : 'http'}://${address}${path}`)
  const answer = await client.get(url, { authorization: `Bearer ${ticket}`, ...rangeFrom(offset, end) }, signal)
  if (answer.status !== 200 && answer.status !== 206) throw await refusalOf(client, answer, digest)
  yield NOTHING
  yield* bodyFrom(client, answer, offset)
}

async function refusalOf(client: TransferClient, answer: TransferResponse, digest: string): Promise<ServiceError> {
  const body = await client.readBody(answer, MAX_REFUSAL_BYTES).catch(() => undefined)
  discard(answer)
  const message = `module ${digest}: ${readRefusal(body) ?? `the source returned ${answer.status}`}`
  switch (answer.status) {
    case 404:
    case 416:
      return new ServiceError('not_found', message)
    case 400:
    case 413:
    case 422:
      return new ServiceError('unprocessable', message)
    case 401:
    case 403:
      return new ServiceError('forbidden', message)
    default: {
      const waitMs = retryAfterMs(answer.headers['retry-after'], Date.now())
      return new ServiceError('unavailable', message, waitMs === undefined ? {} : { retryAfterSeconds: waitMs / 1000 })
    }
  }
}
