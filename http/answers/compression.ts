/**
 * Compresses responses above 1 KiB for callers that accept it, also streamed ones. Responses with secrets are sent as they are; see
 * `secrets.ts`. The hook belongs to routes whose responses have a body, so that others, such as publishing, do not pay for it.
 */
import { pipeline } from 'node:stream'
import type { Readable } from 'node:stream'
import { brotliCompressSync, constants, createBrotliCompress, createGzip, gzipSync } from 'node:zlib'
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify'
import { addVary, compressWhole, encodingFor, isCompressibleType } from './encodings.ts'
import type { Encoding } from './encodings.ts'
import { MIN_COMPRESSED_BYTES } from './kept-answers.ts'
import { NoBody } from './responses.ts'
import { returnsSecret } from './secrets.ts'

/** 60 µs and a quarter of the bytes for a page of 20 KB; larger ones save little more. */
const QUALITY = 4
/** Compressed in place: a background thread would take longer to answer. 0.1 ms. */
const MAX_BYTES_IN_PLACE = 32 * 1024
/** The memory of a stream: 256 KiB instead of 4 MiB of the default. */
const STREAM_WINDOW_BITS = 18

type Done = (error: Error | null, payload?: unknown) => void

/** Call it before the routes are added. */
export function registerCompression(app: FastifyInstance): void {
  app.addHook('onRoute', (route) => {
    // It runs first: Fastify's own hook of HEAD drops the body, whose length is that of the compressed one.
    const compress = compressionOf(route)
    if (compress !== undefined) route.onSend = [compress, ...[route.onSend ?? []].flat()]
  })
}

type OnSend = (request: FastifyRequest, reply: FastifyReply, payload: unknown, done: Done) => void

/** What compresses large responses of the route on request; undefined where none is compressed. */
function compressionOf(route: RouteOptions): OnSend | undefined {
  const response = (route.schema?.response ?? {}) as Record<string, unknown>
  const hasBody = Object.entries(response).some(([status, one]) => status.startsWith('2') && one !== NoBody)
  if (!hasBody) return undefined
  if (!returnsSecret(route)) return compressOnSend
  const parameter = route.config?.secretsParameter
  if (parameter === undefined) return undefined
  return (request, reply, payload, done) => {
    // The query of a request that failed its validation is a text: its response is sent as it is.
    const isWithout = (request.query as Record<string, unknown>)[parameter] === false
    return isWithout ? compressOnSend(request, reply, payload, done) : done(null, payload)
  }
}

function compressOnSend(request: FastifyRequest, reply: FastifyReply, payload: unknown, done: Done): void {
  const isText = typeof payload === 'string' || Buffer.isBuffer(payload)
  if (isText ? payload.length < MIN_COMPRESSED_BYTES : !isStream(payload)) return done(null, payload)
  if (!isCompressible(reply, isText)) return done(null, payload)
  addVary(reply, 'Accept-Encoding')
  const encoding = encodingFor(request.headers['accept-encoding']?.toString())
  if (encoding === undefined) return done(null, payload)
  void reply.header('content-encoding', encoding).removeHeader('content-length')
  if (!isText) return done(null, compressed(payload as Readable, encoding))
  const bytes = typeof payload === 'string' ? Buffer.from(payload) : payload
  if (bytes.length <= MAX_BYTES_IN_PLACE) return done(null, compressInPlace(bytes, encoding))
  // oxlint-disable-next-line promise/no-callback-in-promise -- a callback is how this kind of hook goes on
  compressWhole(encoding, bytes, QUALITY).then((whole) => done(null, whole), done)
}

const isStream = (payload: unknown) => typeof (payload as Partial<Readable> | null)?.pipe === 'function'

function isCompressible(reply: FastifyReply, isText: boolean): boolean {
  // A part of a response, or bytes that are validated, stay what they are. A stream with a length lingers: see `linger.ts`.
  const stays = ['content-encoding', 'content-range', 'etag', ...(isText ? [] : ['content-length'])]
  return (
    !stays.some((name) => reply.hasHeader(name)) && isCompressibleType(String(reply.getHeader('content-type') ?? ''))
  )
}

function compressInPlace(bytes: Buffer, encoding: Encoding): Buffer {
  if (encoding === 'gzip') return gzipSync(bytes, { level: QUALITY })
  return brotliCompressSync(bytes, {
    params: { [constants.BROTLI_PARAM_QUALITY]: QUALITY, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length },
  })
}

/** Each piece of the stream is sent when it arrives: nothing waits for more. */
function compressed(payload: Readable, encoding: Encoding): Readable {
  const stream =
    encoding === 'gzip'
      ? createGzip({ level: QUALITY, flush: constants.Z_SYNC_FLUSH })
      : createBrotliCompress({
          flush: constants.BROTLI_OPERATION_FLUSH,
          params: { [constants.BROTLI_PARAM_QUALITY]: QUALITY, [constants.BROTLI_PARAM_LGWIN]: STREAM_WINDOW_BITS },
        })
  // A failure of either ends the other; Fastify reports that of the response.
  return pipeline(payload, stream, () => undefined)
}
