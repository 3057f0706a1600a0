/**
 * Messages of the worker on one stream, collected per turn of the event loop and sent as one message per kind. Waits
 * while the stream is congested. A large result goes in chunks, one at a time, so that everything smaller overtakes it. Unsent messages are not
 * lost when the stream ends: the next Hello reports the held runs, and results are in the spool.
 */
import { create } from '@bufbuild/protobuf'
import type { MessageInitShape } from '@bufbuild/protobuf'
import type { ClientDuplexStream } from '@grpc/grpc-js'
import { digestOf } from '#core/digest.ts'
import {
  FailureReason,
  RunResultSchema,
  SessionRequestSchema,
  StagedResultSchema,
  WireTaskState,
} from '#proto/index.ts'
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
import { keyOf } from './run-messages.ts'

type Message = NonNullable<MessageInitShape<typeof SessionRequestSchema>['message']>
export type SessionStream = ClientDuplexStream<SessionRequest, SessionResponse>

/** Space for everything in a result except its JSON. */
const RESULT_OVERHEAD_BYTES = 8 * 1024
/** Space for everything in an entry of the state except its key and value. */
const STATE_OVERHEAD_BYTES = 96
const MAX_RESULTS_PER_MESSAGE = 1_000
/** Output of runs that waits for a congested stream. */
const MAX_LOG_BYTES = 8 * 1024 * 1024

/** A run that begins or ends sooner is implicitly accepted. */
const ACCEPT_DELAY_MS = 50
/** A run that ends sooner is only reported by its end, which is one write instead of two (docs/performance.md). */
const RUNNING_DELAY_MS = 4

/** A result that is on its way in chunks. */
type Chunked = { result: RunResult; bytes: Uint8Array; digest: string; sentBytes: number }

export class Outbox {
  readonly #stream: SessionStream
  readonly #limits: WorkerLimits
  readonly #accepted = new DelayedReports(ACCEPT_DELAY_MS, () => this.flush())
  readonly #running = new DelayedReports(RUNNING_DELAY_MS, () => this.flush())
  #other: Message[] = []
  #results: RunResult[] = []
  /** Results that are too large for their message, the oldest first. */
  readonly #chunked: Chunked[] = []
  #isChunkUnderWay = false
  #cancelled: { run: RunRef; stopped: boolean }[] = []
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

  /** Output that a result has is not sent apart. */
  get takesOutputInResult(): boolean {
    return this.#limits.takesOutputInResult
  }

  /** The manager knows the state of tasks. */
  get keepsState(): boolean {
    return this.#limits.keepsState
  }

  /** The manager records runs that this worker started by itself. */
  get takesOfflineRuns(): boolean {
    return this.#limits.takesOfflineRuns
  }

  accepted(run: RunRef): void {
    this.#accepted.add(run)
  }

  started(run: RunRef): void {
    this.#accepted.drop(run)
    this.#running.add(run)
  }

  rejected(run: RunRef, reason: RejectReason, message: string): void {
    this.#dropReports(run)
    this.#other.push({ case: 'reject', value: { run, reason, message } })
    this.#schedule()
  }

  /** The chunk is dropped if the stream has been congested for too long: output is dropped first. */
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

  /** The run has ended, and its result follows as soon as it is on disk: other reports about it are redundant. */
  ending(run: RunRef): void {
    this.#dropReports(run)
  }

  ended(result: RunResult): void {
    if (result.run !== undefined) this.#dropReports(result.run)
    this.#results.push(result)
    this.#schedule()
  }

  /** The answer is sent after the result of the run. */
  cancelled(run: RunRef, stopped: boolean): void {
    this.#cancelled.push({ run, stopped })
    this.#schedule()
  }

  enqueue(message: Message): void {
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

  /** Sends the collected messages, unless the stream is congested or closed. */
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
    this.#flushCancelled()
    this.#sendChunk()
  }

  /** Sends the final messages that the next Hello does not include. */
  close(): void {
    this.flush()
    this.#accepted.clear()
    this.#running.clear()
  }

  #dropReports(run: RunRef): void {
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
    for (const given of this.#results) {
      const result = this.#withoutState(given)
      if (this.#isTooLarge(result)) {
        const json = Buffer.from(result.resultsJson)
        this.#chunked.push({ result, bytes: json, digest: digestOf(json), sentBytes: 0 })
        continue
      }
      const bytes = result.resultsJson.length * 3 + stateBytes(result) + RESULT_OVERHEAD_BYTES
      if (batch.length >= MAX_RESULTS_PER_MESSAGE || batchBytes + bytes > maxBytes) send()
      batch.push(result)
      batchBytes += bytes
    }
    send()
    this.#results = []
  }

  #isTooLarge({ resultsJson }: RunResult): boolean {
    const maxInline = Number(this.#limits.maxInlineResultBytes)
    return resultsJson.length * 3 > maxInline && Buffer.byteLength(resultsJson) > maxInline
  }

  #flushCancelled(): void {
    const chunked = new Set(this.#chunked.flatMap(({ result: { run } }) => (run === undefined ? [] : [keyOf(run)])))
    const waiting = this.#cancelled.filter(({ run }) => chunked.has(keyOf(run)))
    for (const value of this.#cancelled) if (!waiting.includes(value)) this.#write({ case: 'cancelAck', value })
    this.#cancelled = waiting
  }

  /** The next chunk of the oldest large result, or its message, which refers to the digest. The one after follows when the stream has taken it. */
  #sendChunk(): void {
    const [oldest] = this.#chunked
    if (oldest === undefined || this.#isChunkUnderWay) return
    this.#isChunkUnderWay = true
    this.#write(this.#nextOf(oldest), () => {
      this.#isChunkUnderWay = false
      this.#schedule()
    })
  }

  #nextOf(chunked: Chunked): Message {
    const { result, bytes, digest, sentBytes } = chunked
    if (sentBytes < bytes.length) {
      const data = bytes.subarray(sentBytes, sentBytes + Number(this.#limits.maxChunkBytes))
      chunked.sentBytes += data.length
      const value = { digest, offset: BigInt(sentBytes), data }
      return { case: 'resultChunk', value: result.run === undefined ? value : { ...value, run: result.run } }
    }
    this.#chunked.shift()
    const staged = create(StagedResultSchema, { digest, sizeBytes: BigInt(bytes.length) })
    return { case: 'result', value: { results: [create(RunResultSchema, { ...result, resultsJson: '', staged })] } }
  }

  /** A manager that does not write the state must not record the result without it. */
  #withoutState(result: RunResult): RunResult {
    if (result.stateEntries.length === 0 || this.#limits.keepsState) return result
    return create(RunResultSchema, {
      ...result,
      state: WireTaskState.FAILED,
      reason: FailureReason.GUEST_ERROR,
      error: 'the task manager is of an earlier version and keeps no state of tasks',
      resultsJson: '',
      outputInResult: false,
      stateEntries: [],
    })
  }

  #write(message: Message, onTaken?: () => void): void {
    this.#stream.write(create(SessionRequestSchema, { message }), onTaken)
  }
}

function stateBytes({ stateEntries }: RunResult): number {
  return stateEntries.reduce(
    (sum, { key, value }) => sum + key.length * 3 + (value?.length ?? 0) + STATE_OVERHEAD_BYTES,
    0,
  )
}
