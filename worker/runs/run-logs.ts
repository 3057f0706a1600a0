/**
 * Output of runs for the manager. Without a session it is buffered, within a limit over all runs: output beyond it is
 * dropped first, and shows as a gap or a truncated end.
 */
import { create } from '@bufbuild/protobuf'
import { LogChunkSchema, LogStream } from '#proto/index.ts'
import type { LogChunk, RunRef } from '#proto/index.ts'
import type { OutputName } from '../runner/index.ts'
import type { Outbox } from '../session/outbox.ts'
import { keyOf } from '../session/run-messages.ts'

/** Buffered output without a session, of all runs together. */
const MAX_WAITING_BYTES = 8 * 1024 * 1024
const CHUNK_BYTES = 64 * 1024

const STREAMS = { stdout: LogStream.STDOUT, stderr: LogStream.STDERR, http: LogStream.HTTP } as const

/** Output of the guest, or the requests that were sent for it. */
type LoggedName = OutputName | 'http'

export class RunLogs {
  /** Bytes of each output of each run so far. */
  readonly #offsets = new Map<string, Record<LoggedName, number>>()
  #waiting: LogChunk[] = []
  #waitingBytes = 0
  #outbox: Outbox | undefined

  connect(outbox: Outbox): void {
    this.#outbox = outbox
    for (const chunk of this.#waiting) outbox.log(chunk)
    this.#waiting = []
    this.#waitingBytes = 0
  }

  disconnect(): void {
    this.#outbox = undefined
  }

  write(run: RunRef, output: LoggedName, data: Uint8Array, isTruncated = false): void {
    const offsets = this.#offsets.get(keyOf(run)) ?? { stdout: 0, stderr: 0, http: 0 }
    this.#offsets.set(keyOf(run), offsets)
    const size = Math.min(CHUNK_BYTES, this.#outbox?.maxChunkBytes ?? CHUNK_BYTES)
    for (let at = 0; at < data.length; at += size) {
      const part = data.subarray(at, at + size)
      const truncated = isTruncated && at + size >= data.length
      const offset = BigInt(offsets[output])
      offsets[output] += part.length
      this.#send(create(LogChunkSchema, { run, stream: STREAMS[output], offset, data: part, truncated }))
    }
  }

  /** The run has ended and writes nothing more. */
  end(run: RunRef): void {
    this.#offsets.delete(keyOf(run))
  }

  #send(chunk: LogChunk): void {
    if (this.#outbox !== undefined) return this.#outbox.log(chunk)
    if (this.#waitingBytes + chunk.data.length > MAX_WAITING_BYTES) return
    this.#waiting.push(chunk)
    this.#waitingBytes += chunk.data.length
  }
}
