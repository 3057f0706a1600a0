/**
 * Reads the file of a multipart/form-data body (RFC 7578). The bytes around the file are limited, so a hostile body costs no
 * more than reading it.
 */
import { ServiceError } from '#core/errors/index.ts'

/** RFC 2046 section 5.1.1. */
const MAX_BOUNDARY_CHARS = 70
/** The limit for bytes before and after the file: headers of parts, fields and boundaries. */
const MAX_AROUND_BYTES = 16 * 1024
const HEAD_END = Buffer.from('\r\n\r\n')
const DASHES = Buffer.from('--')

export type FilePart = {
  /** The name of the form field. */
  name: string
  /** Throws `malformed` when the body ends before the file does. */
  content: AsyncGenerator<Buffer, void, void>
}

/**
 * The first file of the body; undefined when there is none. Read its content to the end, or not at all. Throws `malformed` for an
 * invalid body, and `too_large` for too many bytes around the file.
 */
export async function readFilePart(
  body: AsyncIterator<Buffer>,
  contentType: string | undefined,
): Promise<FilePart | undefined> {
  const boundary = parameters(contentType ?? '').get('boundary') ?? ''
  if (boundary === '' || boundary.length > MAX_BOUNDARY_CHARS)
    throw malformed(`the content type must name a boundary of 1 to ${MAX_BOUNDARY_CHARS} characters`)
  return await new PartReader(body, boundary).findFile()
}

class PartReader {
  readonly #body: AsyncIterator<Buffer>
  readonly #delimiter: Buffer
  /** Bytes that were read but not used. The first boundary has no line break before it, so one is added. */
  #rest: Buffer = Buffer.from('\r\n')
  #aroundBytes = 0

  constructor(body: AsyncIterator<Buffer>, boundary: string) {
    this.#body = body
    this.#delimiter = Buffer.from(`\r\n--${boundary}`)
  }

  async findFile(): Promise<FilePart | undefined> {
    for (;;) {
      await this.#skipPast(this.#delimiter)
      if (await this.#isEnd()) return undefined
      const head = (await this.#skipPast(HEAD_END)).toString('utf8')
      const [padding = '', ...fields] = head.split('\r\n')
      if (padding.trim() !== '') throw malformed('a boundary must be followed by a line break')
      const said = new Map(fields.map((field) => splitAt(field, ':')))
      const disposition = parameters(said.get('content-disposition') ?? '')
      const isFile =
        disposition.has('filename') ||
        disposition.has('filename*') ||
        said.get('content-type')?.trim() === 'application/octet-stream'
      const name = disposition.get('name')
      if (isFile && name !== undefined) return { name, content: this.#content() }
    }
  }

  async *#content(): AsyncGenerator<Buffer, void, void> {
    for (;;) {
      const at = this.#rest.indexOf(this.#delimiter)
      // The boundary may begin at the end of the buffer.
      const end = at >= 0 ? at : Math.max(0, this.#rest.length - this.#delimiter.length + 1)
      if (end > 0) yield this.#rest.subarray(0, end)
      this.#rest = this.#rest.subarray(at >= 0 ? at + this.#delimiter.length : end)
      if (at >= 0) break
      await this.#readMore()
    }
    if (!(await this.#isEnd()) && !this.#rest.subarray(0, HEAD_END.length).includes('\r\n'))
      throw malformed('a boundary must be followed by a line break')
    // The epilogue is ignored.
    for (let isMore = true; isMore;) {
      this.#count(this.#rest.length)
      const next = await this.#body.next()
      this.#rest = next.value ?? this.#rest
      isMore = next.done !== true
    }
  }

  /** Consumes the bytes up to and including the mark; returns those before it. */
  async #skipPast(mark: Buffer): Promise<Buffer> {
    for (let from = 0; ;) {
      const at = this.#rest.indexOf(mark, from)
      if (at >= 0) {
        const before = this.#rest.subarray(0, at)
        this.#rest = this.#rest.subarray(at + mark.length)
        this.#count(at + mark.length)
        return before
      }
      if (this.#rest.length > MAX_AROUND_BYTES) this.#count(this.#rest.length)
      from = Math.max(0, this.#rest.length - mark.length + 1)
      await this.#readMore()
    }
  }

  /** Whether the last boundary is the closing one. */
  async #isEnd(): Promise<boolean> {
    while (this.#rest.length < DASHES.length) await this.#readMore()
    return this.#rest.subarray(0, DASHES.length).equals(DASHES)
  }

  async #readMore(): Promise<void> {
    const next = await this.#body.next()
    if (next.done === true) throw malformed('the body ends before its closing boundary')
    this.#rest = this.#rest.length === 0 ? next.value : Buffer.concat([this.#rest, next.value])
  }

  #count(bytes: number): void {
    this.#aroundBytes += bytes
    if (this.#aroundBytes > MAX_AROUND_BYTES)
      throw new ServiceError('too_large', `the body must have at most ${MAX_AROUND_BYTES} bytes besides the file`)
  }
}

/** The parameters of `type; name=value; name="value"`, with names in lower case. The first of repeated names wins. */
function parameters(text: string): Map<string, string> {
  const found = new Map<string, string>()
  let begin = 0
  let isQuoted = false
  for (let at = 0; at <= text.length; at++) {
    const char = text[at]
    if (isQuoted && char === '\\') at += 1
    else if (char === '"') isQuoted = !isQuoted
    if (char !== undefined && (char !== ';' || isQuoted)) continue
    const [name, value] = splitAt(text.slice(begin, at), '=')
    if (!found.has(name)) found.set(name, unquote(value))
    begin = at + 1
  }
  return found
}

function splitAt(text: string, mark: string): readonly [string, string] {
  const at = text.indexOf(mark)
  return at < 0 ? [text.trim().toLowerCase(), ''] : [text.slice(0, at).trim().toLowerCase(), text.slice(at + 1).trim()]
}

function unquote(text: string): string {
  if (text.length < 2 || !text.startsWith('"') || !text.endsWith('"')) return text
  return text.slice(1, -1).replaceAll('\\"', '"').replaceAll('\\\\', '\\')
}

function malformed(message: string): ServiceError {
  return new ServiceError('malformed', message)
}
