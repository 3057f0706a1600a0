/** The thread that writes Parquet files: one job at a time, so that little waits in memory. */
import { entryPoint } from '#core/installation.ts'
import { jobThread } from '#core/jobs/index.ts'
import type { DataFileFacts } from './data-file.ts'
import type { NewFile } from './store.ts'

export type ParquetJob =
  | { kind: 'open'; path: string | undefined }
  /** Rows of another statement follow. */
  | { kind: 'copy' }
  | { kind: 'rows'; bytes: Uint8Array<ArrayBuffer> }
  /** The rows of the statement are complete. */
  | { kind: 'copied' }
  | { kind: 'close' }

export type ParquetResult =
  /** `output` is what a file without a path is to be given. */
  | { kind: 'done'; rows: number; bytes: number; output: Uint8Array<ArrayBuffer>[] }
  | { kind: 'closed'; facts: DataFileFacts; output: Uint8Array<ArrayBuffer>[] }
  /** With what errors of files say beyond their message. */
  | { kind: 'failed'; reason: string; code: string | undefined; syscall: string | undefined }

/** A row group of the largest size with its encoded columns. */
const HEAP_MIB = 320

type Waiting = { resolve: (result: ParquetResult) => void; reject: (error: Error) => void }

export class ParquetFiles {
  readonly #runner
  #waiting: Waiting | undefined
  #failure: Error | undefined
  #file: NewFile | undefined

  constructor() {
    this.#runner = jobThread<ParquetJob, ParquetResult>(
      entryPoint('api/messages/archive/parquet-thread.ts'),
      HEAP_MIB,
    )({
      result: (result) => this.#settle((waiting) => waiting.resolve(result)),
      fail: () => {
        this.#failure = new Error('the thread that writes Parquet files ended')
        this.#settle((waiting) => waiting.reject(this.#failure as Error))
      },
    })
    this.#runner.hold(false)
  }

  /** Rows follow. */
  async open(file: NewFile): Promise<void> {
    this.#file = file
    await this.#run({ kind: 'open', path: file.path })
  }

  async beginCopy(): Promise<void> {
    await this.#run({ kind: 'copy' })
  }

  /** How much the open file has. The bytes are moved to the thread. */
  async add(bytes: Uint8Array<ArrayBuffer>): Promise<{ rows: number; bytes: number }> {
    return await this.#progress({ kind: 'rows', bytes }, [bytes.buffer])
  }

  /** Rejects when rows are missing. */
  async endCopy(): Promise<{ rows: number; bytes: number }> {
    return await this.#progress({ kind: 'copied' })
  }

  /** The file is complete and durable afterwards. */
  async close(): Promise<DataFileFacts> {
    const result = await this.#run({ kind: 'close' })
    if (result.kind !== 'closed') throw new Error('the thread that writes Parquet files answered something else')
    await this.#file?.close()
    this.#file = undefined
    return result.facts
  }

  /** Ends the thread; an open file stays incomplete, and is given up. */
  async end(): Promise<void> {
    this.#failure ??= new Error('the thread that writes Parquet files was ended')
    this.#runner.end()
    this.#settle((waiting) => waiting.reject(this.#failure as Error))
    await this.#file?.abort()
  }

  async #progress(job: ParquetJob, transfer: ArrayBuffer[] = []): Promise<{ rows: number; bytes: number }> {
    const result = await this.#run(job, transfer)
    if (result.kind !== 'done') throw new Error('the thread that writes Parquet files answered something else')
    return result
  }

  async #run(job: ParquetJob, transfer: ArrayBuffer[] = []): Promise<ParquetResult> {
    if (this.#failure !== undefined) throw this.#failure
    const result = await new Promise<ParquetResult>((resolve, reject) => {
      this.#waiting = { resolve, reject }
      this.#runner.hold(true)
      this.#runner.post(job, transfer)
    })
    if (result.kind === 'failed')
      throw Object.assign(new Error(result.reason), { code: result.code, syscall: result.syscall })
    // Before the next rows: what waits for a slow store is not more than this.
    for (const bytes of result.output) await this.#file?.write(bytes)
    return result
  }

  #settle(tell: (waiting: Waiting) => void): void {
    const waiting = this.#waiting
    this.#waiting = undefined
    this.#runner.hold(false)
    if (waiting !== undefined) tell(waiting)
  }
}
