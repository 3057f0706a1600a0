/** Modules that were uploaded to the task manager: fetched from there, by digest, for as long as the manager has them. */
import { ServiceError, isRetryable } from '#core/errors/index.ts'
import { sleep } from '#core/time.ts'
import { bodyFrom, discard, rangeFrom } from '#core/transfer/index.ts'
import type { TransferClient } from '#core/transfer/index.ts'
import type { TicketGrant } from '#proto/index.ts'

/** The bytes of an upload from an offset on. Throws `not_found` for one that is not there. */
export type Uploads = (digest: string, offset: number, signal: AbortSignal) => AsyncIterable<Buffer>

/** Ten minutes: as long as a pull may take. */
const TICKET_SECONDS = 600
const MAX_ATTEMPTS = 4
const RETRY_DELAY_MS = 500

export type UploadsOptions = {
  client: TransferClient
  /** Of the manager. */
  baseUrl: URL
  /** Undefined: the proxy knows no token yet, so that it cannot say who it is. */
  ticketFor: (grant: TicketGrant, expiresSeconds: number) => Promise<string | undefined>
}

/** Asks a manager over HTTP, with a ticket for this very module: no secret leaves. */
export function uploadsOver({ client, baseUrl, ticketFor }: UploadsOptions): Uploads {
  return async function* (digest, offset, signal) {
    const grant = { reader: 'proxy', digest, reference: '' }
    const ticket = await ticketFor(grant, Math.floor(Date.now() / 1000) + TICKET_SECONDS)
    if (ticket === undefined) throw new ServiceError('unavailable', 'the proxy knows no token to show to the manager')
    const url = new URL(`modules/${digest}/content`, baseUrl)
    const answer = await client.get(url, { authorization: `Bearer ${ticket}`, ...rangeFrom(offset) }, signal)
    if (answer.status === 200 || answer.status === 206) return yield* bodyFrom(client, answer, offset)
    discard(answer)
    if (answer.status === 404) throw new ServiceError('not_found', `the task manager has no module ${digest}`)
    throw new ServiceError('unavailable', `the task manager answered ${answer.status} for module ${digest}`)
  }
}

/** The whole upload; goes on where it broke off. */
export async function* readUpload(uploads: Uploads, digest: string, signal: AbortSignal): AsyncGenerator<Buffer> {
  let received = 0
  for (let attempt = 1; ; attempt++) {
    try {
      for await (const piece of uploads(digest, received, signal)) {
        received += piece.length
        yield piece
      }
      return
    } catch (error) {
      signal.throwIfAborted()
      if (!isRetryable(error) || attempt >= MAX_ATTEMPTS) throw error
      await sleep(RETRY_DELAY_MS * 2 ** (attempt - 1), signal)
    }
  }
}
