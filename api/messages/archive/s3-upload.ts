/**
 * A data file on its way to an S3-compatible store, in pieces of one size: some stores require that. At most one piece and what was written
 * last are in memory, unless the store refuses uploads in pieces.
 */
import { requestS3 } from './s3-client.ts'
import type { S3Request } from './s3-client.ts'
import { S3Error, isUnsupported } from './s3-error.ts'
import { RETRY_LIMITS } from './s3-target.ts'
import type { S3Target } from './s3-target.ts'
import { escaped, textOf } from './s3-answers.ts'
import type { NewFile } from './store.ts'

/** The smallest that stores accept is 5 MiB, and they accept 10,000 of them. */
const PIECE_BYTES = 8 * 1024 * 1024

export type UploadSteps = {
  /** The object as one request. */
  put(url: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>
  sizeOf(url: string): Promise<number | undefined>
  /** Gives up all uploads to this object. */
  abortUploads(url: string): Promise<void>
}

/** The steps as requests to this target, which the signal ends. */
export type StepsOf = (options: { target: S3Target; signal: AbortSignal }) => UploadSteps

export class S3Upload implements NewFile {
  readonly path = undefined
  readonly #target: S3Target
  readonly #url: string
  readonly #stepsOf: StepsOf
  readonly #steps: UploadSteps
  readonly #pieceBytes: number
  readonly #given = new AbortController()
  readonly #signal: AbortSignal
  /** The piece that is being sent. Does not reject. */
  #sending: Promise<unknown> = Promise.resolve()
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
    { stepsOf, signal }: { stepsOf: StepsOf; signal: AbortSignal | undefined },
  ) {
    this.#target = target
    this.#url = url
    this.#pieceBytes = target.pieceBytes ?? PIECE_BYTES
    const { signal: given } = this.#given
    this.#signal = signal === undefined ? given : AbortSignal.any([signal, given])
    this.#stepsOf = stepsOf
    this.#steps = stepsOf({ target, signal: this.#signal })
  }

  async write(bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const written = this.#write(bytes)
    this.#sending = written.catch(() => undefined)
    await written
  }

  async #write(bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    this.#signal.throwIfAborted()
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
    // A piece that arrives after its upload was given up would stay in the store, and an upload that begins then would stay whole.
    this.#given.abort(new Error('the file was given up'))
    await this.#sending
    this.#waiting = []
    this.#waitingBytes = 0
    const id = this.#id
    // What is given up is given up also while the process stops.
    const limits = this.#target.retry ?? RETRY_LIMITS
    const target = { ...this.#target, retry: { ...limits, deadlineMs: 0 } }
    const signal = AbortSignal.timeout(limits.giveUpMs)
    try {
      if (id !== undefined) {
        const query = { uploadId: id }
        await requestS3(target, { operation: 'AbortMultipartUpload', method: 'DELETE', url: this.#url, query }, signal)
      }
      if (this.#hasUnknown) await this.#stepsOf({ target, signal }).abortUploads(this.#url)
    } catch {
      // The sweep gives up what is left of the file.
    }
  }

  /** False: the store refuses uploads in pieces. */
  async #begin(): Promise<boolean> {
    try {
      this.#hasUnknown = true
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
    return requestS3(this.#target, { ...request, url: this.#url }, this.#signal)
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
