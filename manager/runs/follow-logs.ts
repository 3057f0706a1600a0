/** Output of a run while it comes: read from where the reader stands, until the run has ended and everything was read. */
import type { Database } from '#core/database/index.ts'
import type { EndReason, ServerSentEvent } from '#core/http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import { startAccessWatch } from '#core/streams/index.ts'
import { sleep } from '#core/time.ts'
import { readLogParts } from '../store/runs.ts'
import type { LogPlace } from '../store/runs.ts'

const READ_INTERVAL_MS = 250
/** Readers of one process, and of one domain: each reads the database again and again. */
const MAX_FOLLOWERS = 200
const MAX_FOLLOWERS_PER_DOMAIN = 50
/** A run that has ended may have output under way still. */
const LAST_OUTPUT_MS = 1_000

export type LogReader = {
  send(event: ServerSentEvent): void
  end(reason: EndReason, data?: Readonly<Record<string, unknown>>): void
  /** Resolves when what was sent is on its way: more is read at the pace of the reader. */
  drained(): Promise<void>
}

export type LogFollower = {
  runKey: number
  /** Of the task; null: the platform. */
  domainId: string | null
  /** Undefined: both. */
  stream: 1 | 2 | undefined
  /** Throws when the caller may not read on. */
  authorize: () => Promise<unknown>
  reader: LogReader
}

export type LogFollowing = ReturnType<typeof createLogFollowing>

export function createLogFollowing({ database, logger }: { database: Database; logger: Logger }) {
  const stopping = new AbortController()
  const slots = new Slots({ what: 'followed outputs', max: MAX_FOLLOWERS, share: MAX_FOLLOWERS_PER_DOMAIN })
  const watch = startAccessWatch()

  async function read(runKey: number, stream: 1 | 2 | undefined, reader: LogReader, signal: AbortSignal) {
    const places: LogPlace[] = stream === undefined ? [place(1), place(2)] : [place(stream)]
    let endedReads = 0
    while (!signal.aborted) {
      const { parts, state, isGone } = await readLogParts(database.db, runKey, places)
      if (signal.aborted) break
      for (const part of parts) {
        const at = places.find((one) => one.stream === part.stream)
        if (at === undefined) continue
        at.offset = part.offset + part.data.length
        const name = part.stream === 1 ? 'stdout' : 'stderr'
        const gap = part.truncated ? { truncated: true } : {}
        const data = { stream: name, offset: part.offset, text: at.decoder.decode(part.data, { stream: true }), ...gap }
        reader.send({ event: name, data })
        await reader.drained()
        if (signal.aborted) break
      }
      if (parts.length > 0) continue
      if (isGone) return reader.end('not_found')
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
    /** Throws `rate_limited` and `unavailable` with too many readers. Answers how to leave. */
    async follow({ runKey, domainId, stream, authorize, reader }: LogFollower): Promise<{ close(): void }> {
      const giveBack = await slots.take(domainId)
      const leaving = new AbortController()
      const unwatch = watch.add({
        authorize,
        lost(kind) {
          leaving.abort()
          reader.end(kind === 'unauthenticated' ? kind : 'not_found')
        },
      })
      read(runKey, stream, reader, AbortSignal.any([leaving.signal, stopping.signal]))
        .catch((error: unknown) => {
          logger.warn({ err: error }, 'failed to read the output of a run')
          reader.end('stopping')
        })
        .finally(() => {
          unwatch()
          giveBack()
        })
      return { close: () => leaving.abort() }
    },
    close() {
      watch.stop()
      stopping.abort()
    },
  }
}

function place(stream: 1 | 2): LogPlace {
  return { stream, offset: 0, decoder: new TextDecoder() }
}
