/** Output of a run while it comes: read from where the reader stands, until the run has ended and everything was read. */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sleep } from '#core/time.ts'
import type { EndReason, ServerSentEvent } from '../events/event-stream.ts'
import { readLogParts } from './repository.ts'
import type { LogPlace } from './repository.ts'

const READ_INTERVAL_MS = 250
/** Readers of one process; beyond, 503. */
const MAX_FOLLOWERS = 200
/** A run that has ended may have output under way still. */
const LAST_OUTPUT_MS = 1_000

export type LogReader = {
  send(event: ServerSentEvent): void
  end(reason: EndReason, data?: Readonly<Record<string, unknown>>): void
}

export function createLogFollowing({ database, logger }: { database: Database; logger: Logger }) {
  const stopping = new AbortController()
  let followers = 0

  async function read(runKey: number, stream: 1 | 2 | undefined, reader: LogReader, signal: AbortSignal) {
    const places: LogPlace[] = stream === undefined ? [place(1), place(2)] : [place(stream)]
    let endedReads = 0
    while (!signal.aborted) {
      const { parts, state } = await readLogParts(database.db, runKey, places)
      for (const part of parts) {
        const at = places.find((one) => one.stream === part.stream)
        if (at === undefined) continue
        at.offset = part.offset + part.data.length
        const name = part.stream === 1 ? 'stdout' : 'stderr'
        const gap = part.truncated ? { truncated: true } : {}
        const data = { stream: name, offset: part.offset, text: at.decoder.decode(part.data, { stream: true }), ...gap }
        reader.send({ event: name, data })
      }
      if (parts.length > 0) continue
      if (state !== undefined && endedReads * READ_INTERVAL_MS >= LAST_OUTPUT_MS) {
        reader.end('ended', { state })
        return
      }
      if (state !== undefined) endedReads += 1
      await sleep(READ_INTERVAL_MS, signal).catch(() => undefined)
    }
    if (stopping.signal.aborted) reader.end('stopping')
  }

  return {
    /** Throws `unavailable` with too many readers. Answers how to leave. */
    follow(runKey: number, stream: 1 | 2 | undefined, reader: LogReader): { close(): void } {
      if (followers >= MAX_FOLLOWERS) {
        throw new ServiceError('unavailable', `${MAX_FOLLOWERS} outputs are followed already`, { retryAfterSeconds: 5 })
      }
      const leaving = new AbortController()
      followers += 1
      read(runKey, stream, reader, AbortSignal.any([leaving.signal, stopping.signal]))
        .catch((error: unknown) => {
          logger.warn({ err: error }, 'the output of a run could not be read')
          reader.end('stopping')
        })
        .finally(() => {
          followers -= 1
        })
      return { close: () => leaving.abort() }
    },
    close: () => stopping.abort(),
  }
}

function place(stream: 1 | 2): LogPlace {
  return { stream, offset: 0, decoder: new TextDecoder() }
}
