/**
 * Responses that are the same for every caller: rendered once, kept as bytes, also compressed, and validated by an `ETag`. A caller
 * without credentials may ask for them at any rate, so that an answer costs little more than its bytes on the wire.
 */
import { createHash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { addVary, compressWhole, encodingFor, isCompressibleType } from './encodings.ts'
import type { Encoding } from './encodings.ts'

/** Smaller answers are sent as they are: compressed, they would fit the same packet. */
export const MIN_COMPRESSED_BYTES = 1024
/** The quality for bytes that are compressed once and sent many times: compressing a megabyte takes 30 ms of a background thread. */
const KEPT_QUALITY = 9
/** The number of characters of the digest: two contents never share so many. */
const TAG_CHARS = 22
/** The number of tags of `If-None-Match` that are compared. */
const MAX_TAGS = 20

type Representation = { bytes: Buffer; etag: string; encoding: Encoding | undefined }

export type KeptOptions = {
  /** Reads compressed bytes that exist already. The others are made when they are first asked for. */
  given?: Partial<Record<Encoding, () => Promise<Buffer>>>
  /** The effort of the compression: see `compressWhole`. */
  quality?: number
}

export class KeptAnswer {
  readonly type: string
  /** Whether the answer depends on `Accept-Encoding`. */
  readonly isNegotiated: boolean
  readonly #digest: string
  readonly #plain: Buffer
  readonly #given: KeptOptions['given']
  readonly #quality: number
  readonly #compressed = new Map<Encoding, () => Promise<Buffer>>()

  constructor(type: string, content: string | Buffer, { given, quality = KEPT_QUALITY }: KeptOptions = {}) {
    this.type = type
    this.#plain = typeof content === 'string' ? Buffer.from(content) : content
    this.#given = given
    this.#quality = quality
    this.isNegotiated = given !== undefined || (this.#plain.length >= MIN_COMPRESSED_BYTES && isCompressibleType(type))
    this.#digest = createHash('sha256').update(this.#plain).digest('base64url').slice(0, TAG_CHARS)
  }

  /** The answer in a coding, or as it is. Each form has a tag of its own (RFC 9110 section 8.8.3.3). */
  async in(encoding: Encoding | undefined): Promise<Representation> {
    if (encoding === undefined || !this.isNegotiated)
      return { bytes: this.#plain, etag: `"${this.#digest}"`, encoding: undefined }
    let compressed = this.#compressed.get(encoding)
    if (compressed === undefined) {
      const compress = () => compressWhole(encoding, this.#plain, this.#quality)
      compressed = renderOnce(this.#given?.[encoding] ?? compress)
      this.#compressed.set(encoding, compressed)
    }
    return { bytes: await compressed(), etag: `"${this.#digest}-${encoding}"`, encoding }
  }
}

/**
 * An answer that is rendered at the first request for it; callers that ask meanwhile wait for the same rendering. A rendering that
 * fails is tried again.
 */
export function renderOnce<T>(render: () => T | Promise<T>): () => Promise<T> {
  let rendering: Promise<T> | undefined
  return () => {
    rendering ??= Promise.resolve()
      .then(render)
      .catch((error: unknown) => {
        rendering = undefined
        throw error
      })
    return rendering
  }
}

/** Sends the answer, compressed if the caller accepts that, or 304 if the caller has it. Callers keep it and ask whether it is still the same. */
export async function sendKept(
  request: FastifyRequest,
  reply: FastifyReply,
  answer: KeptAnswer,
  cacheControl = 'no-cache',
): Promise<FastifyReply> {
  const { headers } = request
  const { bytes, etag, encoding } = await answer.in(encodingFor(headers['accept-encoding']?.toString()))
  void reply.header('etag', etag).header('cache-control', cacheControl)
  if (answer.isNegotiated) addVary(reply, 'Accept-Encoding')
  if (isKnown(headers['if-none-match'], etag)) return await reply.code(304).send()
  if (encoding !== undefined) void reply.header('content-encoding', encoding)
  return await reply.type(answer.type).send(bytes)
}

/** Weak comparison (RFC 9110 section 13.1.2). */
function isKnown(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false
  return ifNoneMatch
    .split(',', MAX_TAGS)
    .map((tag) => tag.trim().replace(/^W\//, ''))
    .some((tag) => tag === etag || tag === '*')
}
