/**
 * A data file on its way to an S3-compatible store, in pieces of one size: some stores require that. At most one piece and what was written
 * last are in memory, unless the store refuses uploads in pieces.
 */
import { requestS3 } from './s3-client.ts'
import type { S3Request } from './s3-client.ts'
import { S3Error, isUnsupported } from './s3-error.ts'
import type { RetryLimits, S3Target } from './s3-target.ts'
import { escaped, textOf } from './s3-answers.ts'
import type { NewFile } from './store.ts'

/** The smallest that stores accept is 5 MiB, and they accept 10,000 of them. */
const PIECE_BYTES = 8 * 1024 * 1024
/** A store that has just failed must not hold up the round. */
const ONE_ATTEMPT: RetryLimits = { attemptMs: 5000, pieceMs: 5000, deadlineMs: 0, pauseMs: 1 }

export type UploadSteps = {
  /** The object as one request. */
  put(url: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>
  sizeOf(url: string): Promise<number | undefined>
  /** Gives up all uploads to this object. */
  abortUploads(url: string): Promise<void>
}

export class S3Upload implements NewFile {
  readonly path = undefined
  readonly #target: S3Target
  readonly #url: string
  readonly #steps: UploadSteps
  readonly #pieceBytes: number
  readonly #signal: AbortSignal | undefined
  #waiting: Uint8Array<ArrayBuffer>[] = []
  #waitingBytes = 0
  #sent = 0
  #id: string | undefined
  /** An upload may have been begun whose id did not arrive. */
  #hasUnknown = false
  #etags: string[] = []

  constructor(
    target: S3Target,
    url: string,
    { steps, signal }: { steps: UploadSteps; signal: AbortSignal | undefined },
  ) {
    this.#target = target
    this.#url = url
    this.#steps = steps
    this.#pieceBytes = target.pieceBytes ?? PIECE_BYTES
    this.#signal = signal
  }

  async write(bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    this.#waiting.push(bytes)
    this.#waitingBytes += bytes.length
    while (this.#waitingBytes >= this.#pieceBytes && !this.#target.lacks.has('multipart')) {
      if (this.#id === undefined && !(await this.#begin())) return
      await this.#send(this.#take(this.#pieceBytes))
    }
  }

  async close(): Promise<void> {
    const total = this.#sent + this.#waitingBytes
    if (this.#id === undefined) await this.#steps.put(this.#url, this.#take(this.#waitingBytes))
    else {
      if (this.#waitingBytes > 0) await this.#send(this.#take(this.#waitingBytes))
      await this.#complete()
    }
    const size = await this.#steps.sizeOf(this.#url)
    if (size !== total) throw new Error(`the object store has ${size ?? 0} bytes of a file of ${total}`)
    if (this.#hasUnknown) await this.#steps.abortUploads(this.#url)
  }

  async abort(): Promise<void> {
    this.#waiting = []
    this.#waitingBytes = 0
    const id = this.#id
    try {
      if (id !== undefined)
        await this.#request({ operation: 'AbortMultipartUpload', method: 'DELETE', query: { uploadId: id } })
      if (this.#hasUnknown) await this.#steps.abortUploads(this.#url)
    } catch {
      // The sweep gives up what is left of the file.
    }
  }

  /** False: the store refuses uploads in pieces. */
  async #begin(): Promise<boolean> {
    try {
      const { text, isRepeated } = await this.#request({
        operation: 'CreateMultipartUpload',
        method: 'POST',
        query: { uploads: '' },
      })
      const id = textOf(text, 'UploadId')
      if (id === undefined || id === '') throw new Error('the object store began an upload without an id')
      this.#id = id
      this.#hasUnknown = isRepeated
      return true
    } catch (error) {
      if (!(error instanceof S3Error)) throw error
      this.#hasUnknown = error.isRepeated || error.status === 0 || error.status >= 500
      if (!isUnsupported(error)) throw error
      this.#target.lacks.add('multipart')
      return false
    }
  }

  async #send(body: Uint8Array<ArrayBuffer>): Promise<void> {
    const query = { partNumber: String(this.#etags.length + 1), uploadId: this.#id ?? '' }
    const { headers } = await this.#request({ operation: 'UploadPart', method: 'PUT', query, body })
    const etag = headers.get('etag')
    if (etag === null) throw new Error('the object store answered a piece without its ETag')
    this.#etags.push(etag)
    this.#sent += body.length
  }

  async #complete(): Promise<void> {
    const pieces = this.#etags.map(
      (etag, index) => `<Part><PartNumber>${index + 1}</PartNumber><ETag>${escaped(etag)}</ETag></Part>`,
    )
    const body = Buffer.from(
      `<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">${pieces.join('')}</CompleteMultipartUpload>`,
    )
    try {
      const query = { uploadId: this.#id ?? '' }
      await this.#request({ operation: 'CompleteMultipartUpload', method: 'POST', query, body })
    } catch (error) {
      // An earlier attempt was carried out, and its answer was lost. The size is compared next.
      if (error instanceof S3Error && error.isRepeated && error.status === 404) return
      throw error
    }
  }

  #request(request: Omit<S3Request, 'url'>) {
    // What is given up is given up also while the process stops.
    return request.operation === 'AbortMultipartUpload'
      ? requestS3({ ...this.#target, retry: ONE_ATTEMPT }, { ...request, url: this.#url })
      : requestS3(this.#target, { ...request, url: this.#url }, this.#signal)
  }

  #take(bytes: number): Uint8Array<ArrayBuffer> {
    const taken = new Uint8Array(bytes)
    let at = 0
    while (at < bytes) {
      const first = this.#waiting[0] as Uint8Array<ArrayBuffer>
      const part = first.subarray(0, bytes - at)
      taken.set(part, at)
      at += part.length
      if (part.length === first.length) this.#waiting.shift()
      else this.#waiting[0] = first.subarray(part.length)
    }
    this.#waitingBytes -= bytes
    return taken
  }
}
