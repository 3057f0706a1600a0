/**
 * What the worker has to say on one stream, gathered per turn of the event loop and sent as one message per kind. Waits
 * while the stream is congested. What is not sent when the stream ends is not lost: the next Hello tells what is held,
 * and results are in the spool.
 */
import { create } from '@bufbuild/protobuf'
import type { MessageInitShape } from '@bufbuild/protobuf'
import type { ClientDuplexStream } from '@grpc/grpc-js'
import { digestOf } from '#core/digest.ts'
import { RunResultSchema, SessionRequestSchema, StagedResultSchema } from '#proto/index.ts'
import type {
  LogChunk,
  RejectReason,
  RunRef,
  RunResult,
  SessionRequest,
  SessionResponse,
  WorkerLimits,
} from '#proto/index.ts'
import { DelayedReports } from './delayed-reports.ts'

type Message = NonNullable<MessageInitShape<typeof SessionRequestSchema>['message']>
export type SessionStream = ClientDuplexStream<SessionRequest, SessionResponse>

/** Room for everything in a result but its JSON. */
const RESULT_OVERHEAD_BYTES = 8 * 1024
const MAX_RESULTS_PER_MESSAGE = 1_000
/** Output of runs that waits for a congested stream. */
const MAX_LOG_BYTES = 8 * 1024 * 1024

/** A run that begins or ends sooner was accepted, as the manager sees from that. */
const ACCEPT_DELAY_MS = 50
/** A run that ends sooner is reported by its end alone, which is one write instead of two (docs/performance.md). */
const RUNNING_DELAY_MS = 4

export class Outbox {
  readonly #stream: SessionStream
  readonly #limits: WorkerLimits
  readonly #accepted = new DelayedReports(ACCEPT_DELAY_MS, () => this.flush())
  readonly #running = new DelayedReports(RUNNING_DELAY_MS, () => this.flush())
  #other: Message[] = []
  #results: RunResult[] = []
  #after: Message[] = []
  #logBytes = 0
  #isScheduled = false

  constructor(stream: SessionStream, limits: WorkerLimits) {
    this.#stream = stream
    this.#limits = limits
    stream.on('drain', () => this.#schedule())
  }

  get maxChunkBytes(): number {
    return Number(this.#limits.maxChunkBytes)
  }

  accepted(run: RunRef): void {
    this.#accepted.add(run)
  }

  started(run: RunRef): void {
    this.#accepted.drop(run)
    this.#running.add(run)
  }

  rejected(run: RunRef, reason: RejectReason, message: string): void {
    this.#forget(run)
    this.#other.push({ case: 'reject', value: { run, reason, message } })
    this.#schedule()
  }

  /** Dropped when the stream has been congested for too long: output is the first thing to go. */
  log(chunk: LogChunk): void {
    if (this.#logBytes > MAX_LOG_BYTES) return
    this.#logBytes += chunk.data.length
    this.#other.push({ case: 'logChunk', value: chunk })
    this.#schedule()
  }

  guestCall(call: Extract<Message, { case: 'guestCall' }>['value']): void {
    this.#other.push({ case: 'guestCall', value: call })
    this.#schedule()
  }

  /** It is over, and its end follows as soon as it is on disk: nothing else needs to be said of it. */
  ending(run: RunRef): void {
    this.#forget(run)
  }

  ended(result: RunResult): void {
    if (result.run !== undefined) this.#forget(result.run)
    this.#results.push(result)
    this.#schedule()
  }

  /** Sent after the results that were there before it. */
  cancelled(run: RunRef, stopped: boolean): void {
    this.#after.push({ case: 'cancelAck', value: { run, stopped } })
    this.#schedule()
  }

  tell(message: Message): void {
    this.#other.push(message)
    this.#schedule()
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.flush()
    })
  }

  /** Hands over what there is now, unless the stream is congested or gone. */
  flush(): void {
    const { writable, writableNeedDrain } = this.#stream
    if (!writable || writableNeedDrain) return
    const accepted = this.#accepted.takeDue()
    if (accepted.length > 0) this.#write({ case: 'accept', value: { runs: accepted } })
    const running = this.#running.takeDue()
    if (running.length > 0) this.#write({ case: 'stateUpdate', value: { running } })
    for (const message of this.#other) this.#write(message)
    this.#other = []
    this.#logBytes = 0
    this.#flushResults()
    for (const message of this.#after) this.#write(message)
    this.#after = []
  }

  /** Says what is left to say that the next Hello does not, and nothing more. */
  close(): void {
    this.flush()
    this.#accepted.clear()
    this.#running.clear()
  }

  #forget(run: RunRef): void {
    this.#accepted.drop(run)
    this.#running.drop(run)
  }

  #flushResults(): void {
    const maxBytes = Number(this.#limits.maxMessageBytes)
    let batch: RunResult[] = []
    let batchBytes = 0
    const send = () => {
      if (batch.length > 0) this.#write({ case: 'result', value: { results: batch } })
      batch = []
      batchBytes = 0
    }
    for (const result of this.#results) {
      const sendable = this.#stage(result)
      const bytes = sendable.resultsJson.length * 3 + RESULT_OVERHEAD_BYTES
      if (batch.length >= MAX_RESULTS_PER_MESSAGE || batchBytes + bytes > maxBytes) send()
      batch.push(sendable)
      batchBytes += bytes
    }
    send()
    this.#results = []
  }

  /** A result that is too large for its message goes ahead in chunks, and the message names its digest. */
  #stage(result: RunResult): RunResult {
    const maxInline = Number(this.#limits.maxInlineResultBytes)
    if (result.resultsJson.length * 3 <= maxInline || Buffer.byteLength(result.resultsJson) <= maxInline) return result
    const bytes = Buffer.from(result.resultsJson)
    const digest = digestOf(bytes)
    const maxChunk = Number(this.#limits.maxChunkBytes)
    for (let offset = 0; offset < bytes.length; offset += maxChunk) {
      const data = bytes.subarray(offset, offset + maxChunk)
      const value = { digest, offset: BigInt(offset), data }
      this.#write({ case: 'resultChunk', value: result.run === undefined ? value : { ...value, run: result.run } })
    }
    const staged = create(StagedResultSchema, { digest, sizeBytes: BigInt(bytes.length) })
    return create(RunResultSchema, { ...result, resultsJson: '', staged })
  }

  #write(message: Message): void {
    this.#stream.write(create(SessionRequestSchema, { message }))
  }
}
