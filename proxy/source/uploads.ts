/** Uploaded modules: fetched from the task manager by digest, while it has them. */
import { ServiceError, isRetryable } from '#core/errors/index.ts'
import { sleep } from '#core/time.ts'
import { bodyFrom, discard, rangeFrom } from '#core/transfer/index.ts'
import type { TransferClient } from '#core/transfer/index.ts'
import type { TicketGrant } from '#proto/index.ts'

/** The bytes of an upload from an offset. Throws `not_found`. */
export type Uploads = (digest: string, offset: number, signal: AbortSignal) => AsyncIterable<Buffer>

/** Ten minutes: the deadline of a pull. */
const TICKET_SECONDS = 600
const MAX_ATTEMPTS = 4
const RETRY_DELAY_MS = 500

export type UploadsOptions = {
  client: TransferClient
  /** URL of the manager. */
  baseUrl: URL
  /** Undefined: the proxy has no token yet and cannot authenticate. */
  ticketFor: (grant: TicketGrant, expiresSeconds: number) => Promise<string | undefined>
}

/** Fetches from a manager over HTTP, with a ticket for this module: no secret is sent. */
export function uploadsOver({ client, baseUrl, ticketFor }: UploadsOptions): Uploads {
  return async function* (digest, offset, signal) {
    const grant = { reader: 'proxy', digest, reference: '' }
    const ticket = await ticketFor(grant, Math.floor(Date.now() / 1000) + TICKET_SECONDS)
    if (ticket === undefined)
      throw new ServiceError('unavailable', 'the proxy has no token to authenticate at the manager')
    const url = new URL(`modules/${digest}/content`, baseUrl)
    const answer = await client.get(url, { authorization: `Bearer ${ticket}`, ...rangeFrom(offset) }, signal)
    if (answer.status === 200 || answer.status === 206) return yield* bodyFrom(client, answer, offset)
    discard(answer)
    if (answer.status === 404) throw new ServiceError('not_found', `the task manager has no module ${digest}`)
    throw new ServiceError('unavailable', `the task manager returned ${answer.status} for module ${digest}`)
  }
}

/** The whole upload; resumes after an interruption. */
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
