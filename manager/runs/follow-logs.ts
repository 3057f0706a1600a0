/** Follows the output of a run: reads from the reader's position until the run has ended and all output was read. */
import { isUtf8 } from 'node:buffer'
import { wholeCharactersLength } from '#core/bytes/index.ts'
import type { Database } from '#core/database/index.ts'
import type { EndReason, ServerSentEvent } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import { startAccessWatch } from '#core/streams/index.ts'
import { sleep } from '#core/time.ts'
import { LOG_STREAMS, type LogStreamNumber } from '../model/log-streams.ts'
import { readLogParts, readOutputOfResult } from '../store/runs.ts'
import type { LogPart, LogPlace } from '../store/runs.ts'

const READ_INTERVAL_MS = 250
/** Readers of one process, and per domain: each polls the database. */
const MAX_FOLLOWERS = 200
const MAX_FOLLOWERS_PER_DOMAIN = 50
/** Output of a run can arrive this long after its end. */
const LAST_OUTPUT_MS = 1_000

export type LogReader = {
  send(event: ServerSentEvent): void
  end(reason: EndReason, data?: Readonly<Record<string, unknown>>): void
  /** Resolves when the sent data is written: the reader determines the pace. */
  drained(): Promise<void>
}

export type LogFollower = {
  runKey: number
  /** The domain of the task; null: the platform. */
  domainId: string | null
  /** Undefined: all streams. */
  stream: LogStreamNumber | undefined
  /** Throws if the caller's permission to read was revoked. */
  authorize: () => Promise<unknown>
  reader: LogReader
}

export type LogFollowers = ReturnType<typeof createLogFollowers>

export function createLogFollowers({ database, logger }: { database: Database; logger: Logger }) {
  const stopping = new AbortController()
  const slots = new Slots({ what: 'followed outputs', max: MAX_FOLLOWERS, share: MAX_FOLLOWERS_PER_DOMAIN })
  const watch = startAccessWatch()

  async function read(runKey: number, stream: LogStreamNumber | undefined, reader: LogReader, signal: AbortSignal) {
    const places: LogPlace[] = stream === undefined ? [place(1), place(2), place(3)] : [place(stream)]
    let endedReads = 0
    let isResultRead = false
    while (!signal.aborted) {
      const { parts, state, isGone } = await readLogParts(database.db, runKey, places)
      if (signal.aborted) break
      for (const part of parts) {
        const at = places.find((one) => one.stream === part.stream)
        if (at === undefined) continue
        // What follows a gap does not complete a character.
        if (part.truncated) sendRest(reader, at)
        const name = nameOf(part.stream)
        const data = { stream: name, ...take(at, part), ...(part.truncated ? { truncated: true } : {}) }
        at.offset = part.offset + part.data.length
        reader.send({ event: name, data })
        await reader.drained()
        if (signal.aborted) break
      }
      if (parts.length > 0) continue
      if (state !== undefined && !isResultRead) {
        // What a command wrote is removed when its result has it: the rest is read there.
        isResultRead = true
        const written = (await readOutputOfResult(database.db, runKey)) ?? []
        for (const { stream: of, data } of written) {
          const at = places.find((one) => one.stream === of)
          if (at !== undefined) await sendAll(reader, at, data, signal)
        }
        if (signal.aborted) break
      }
      if (isGone) return reader.end('not_found')
      if (state !== undefined && endedReads * READ_INTERVAL_MS >= LAST_OUTPUT_MS) {
        for (const at of places) sendRest(reader, at)
        reader.end('ended', { state })
        return
      }
      if (state !== undefined) endedReads += 1
      await sleep(READ_INTERVAL_MS, signal).catch(() => undefined)
    }
    if (stopping.signal.aborted) reader.end('stopping')
  }

  return {
    /** Throws `rate_limited` and `unavailable` with too many readers. Returns a handle to stop. */
    async follow({ runKey, domainId, stream, authorize, reader }: LogFollower): Promise<{ close(): void }> {
      const release = await slots.take(domainId)
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
          logger.warn({ err: error }, 'failed to read the output of a run; retrying')
          reader.end('stopping')
        })
        .finally(() => {
          unwatch()
          release()
        })
      return { close: () => leaving.abort() }
    },
    close() {
      watch.stop()
      stopping.abort()
    },
  }
}

/** Output of one event. */
const EVENT_BYTES = 64 * 1024

/** Sends what follows the place of the reader. */
async function sendAll(reader: LogReader, at: LogPlace, data: Buffer, signal: AbortSignal): Promise<void> {
  while (at.offset < data.length && !signal.aborted) {
    const part = { offset: at.offset, data: data.subarray(at.offset, at.offset + EVENT_BYTES) }
    const name = nameOf(at.stream)
    const event = { stream: name, ...take(at, part) }
    at.offset = part.offset + part.data.length
    reader.send({ event: name, data: event })
    await reader.drained()
  }
}

function place(stream: LogStreamNumber): LogPlace {
  return { stream, offset: 0, begun: Buffer.alloc(0) }
}

const nameOf = (stream: number) => LOG_STREAMS[stream - 1] ?? 'stderr'

/** The bytes of a character that no output completed. */
function sendRest(reader: LogReader, at: LogPlace): void {
  if (at.begun.length === 0) return
  const name = nameOf(at.stream)
  const data = { stream: name, offset: at.offset - at.begun.length, base64: at.begun.toString('base64') }
  at.begun = Buffer.alloc(0)
  reader.send({ event: name, data })
}

/** The part as text if it is UTF-8, else as base64. A character that another part ends is left for it. */
function take(
  at: LogPlace,
  part: Pick<LogPart, 'offset' | 'data'>,
): { offset: number; text: string } | { offset: number; base64: string } {
  const offset = part.offset - at.begun.length
  const data = Buffer.concat([at.begun, part.data])
  const whole = wholeCharactersLength(data)
  if (isUtf8(data.subarray(0, whole))) {
    at.begun = data.subarray(whole)
    return { offset, text: data.toString('utf8', 0, whole) }
  }
  at.begun = Buffer.alloc(0)
  return { offset, base64: data.toString('base64') }
}
