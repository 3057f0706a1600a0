/** Content codings of responses (RFC 9110 sections 8.4 and 12.5.3): which one a caller accepts, and the bytes in it. */
import { promisify } from 'node:util'
import { brotliCompress, constants, gzip } from 'node:zlib'
import type { FastifyReply } from 'fastify'

/**
 * The encodings are in the order of preference among those that a caller accepts equally: Brotli is smaller for the same processor time.
 */
const ENCODINGS = ['br', 'gzip'] as const
export type Encoding = (typeof ENCODINGS)[number]

/** `x-gzip` is equivalent (RFC 9110 section 8.4.1.3). */
const ALIASES: Readonly<Record<string, string>> = { 'x-gzip': 'gzip' }
/** The number of items of `Accept-Encoding` that are read. */
const MAX_ITEMS = 20
const WEIGHT = /^q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/i

/** The coding for a response to a request with this header; undefined: the response is sent as it is. */
export function encodingFor(acceptEncoding: string | undefined): Encoding | undefined {
  if (acceptEncoding === undefined) return undefined
  const weights = new Map<string, number>()
  for (const item of acceptEncoding.toLowerCase().split(',', MAX_ITEMS)) {
    const [name = '', ...parameters] = item.split(';').map((part) => part.trim())
    const weight = parameters.length === 0 ? '1' : WEIGHT.exec(parameters[0] ?? '')?.[1]
    // A weight that cannot be read accepts nothing.
    weights.set(ALIASES[name] ?? name, Number(weight ?? 0))
  }
  let chosen: Encoding | undefined
  let most = 0
  for (const encoding of ENCODINGS) {
    const weight = weights.get(encoding) ?? weights.get('*') ?? 0
    if (weight > most) [chosen, most] = [encoding, weight]
  }
  // A caller that prefers the bytes as they are says so with a larger weight.
  return most >= (weights.get('identity') ?? 0) ? chosen : undefined
}

/** Types whose bytes are text; images, archives and modules are compressed already, or are checked by their digest. */
const COMPRESSIBLE_TYPE =
  /^(?:text\/(?!event-stream)|application\/(?:javascript|json|x-ndjson|x-yaml|xml|cbor|[a-z.-]+\+(?:json|xml|cbor))|image\/svg\+xml)/

/** Whether answers of the content type are compressed. Event streams are not: each event is sent at once. */
export function isCompressibleType(contentType: string): boolean {
  return COMPRESSIBLE_TYPE.test(contentType)
}

/** Names a request header on which the response depends, beside those that it has. */
export function addVary(reply: FastifyReply, name: string): void {
  const given = reply.getHeader('vary')
  if (given === undefined) return void reply.header('vary', name)
  const names = String(given)
    .split(',')
    .map((one) => one.trim().toLowerCase())
  if (!names.includes(name.toLowerCase())) void reply.header('vary', `${String(given)}, ${name}`)
}

const compressors = { br: promisify(brotliCompress), gzip: promisify(gzip) } as const

/** Compresses in a background thread. The quality is that of zlib, 1 to 9: a larger one takes longer for fewer bytes. */
export async function compressWhole(encoding: Encoding, bytes: Buffer, quality: number): Promise<Buffer> {
  if (encoding === 'gzip') return await compressors.gzip(bytes, { level: quality })
  const params = { [constants.BROTLI_PARAM_QUALITY]: quality, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length }
  return await compressors.br(bytes, { params })
}
