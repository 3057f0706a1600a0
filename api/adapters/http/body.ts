/** Message bodies: bytes of any supported content type, optionally compressed with gzip within the same limit. */
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import type { FastifyRequest } from 'fastify'
import { JSON_TYPE, OCTET_STREAM, SENML_CBOR, SENML_JSON, TEXT_PLAIN } from '#api/messages/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { readWholeBody } from '#http/index.ts'
import type { HttpApp } from '#http/index.ts'

export const MESSAGE_TYPES = [SENML_JSON, SENML_CBOR, JSON_TYPE, OCTET_STREAM, TEXT_PLAIN] as const

const inflate = promisify(gunzip)

/** Parses bodies of this scope as a Buffer; unsupported content types and encodings are rejected before the body is read. */
export function takeMessageBodies(scope: HttpApp): void {
  scope.removeAllContentTypeParsers()
  // Each type has its name here, too, because Fastify would parse the header of every request for "*".
  for (const type of ['*', ...MESSAGE_TYPES]) scope.addContentTypeParser(type, readWholeBody)
  scope.addHook('onRequest', (request, _reply, done) => {
    try {
      contentTypeOf(request)
      isCompressed(request)
      done()
    } catch (error) {
      done(error as Error)
    }
  })
}

/** The declared type without parameters; undefined without one. Throws `unsupported_media_type`. */
export function contentTypeOf(request: FastifyRequest): string | undefined {
  const declared = request.headers['content-type']
  if (declared === SENML_JSON) return declared
  if (declared === undefined || declared === '') return undefined
  const semicolon = declared.indexOf(';')
  const type = (semicolon < 0 ? declared : declared.slice(0, semicolon)).trim().toLowerCase()
  if (!MESSAGE_TYPES.some((known) => known === type)) {
    throw new ServiceError('unsupported_media_type', `unsupported content type: use ${MESSAGE_TYPES.join(', ')}`)
  }
  return type
}

/** The bytes of the message; a promise when they must be decompressed, which rejects with `too_large` above the limit. */
export function messageBytes(request: FastifyRequest): Buffer | Promise<Buffer> {
  const body = (request.body as Buffer | undefined) ?? Buffer.alloc(0)
  return isCompressed(request) ? inflated(body, request.facts.bodyLimit) : body
}

async function inflated(body: Buffer, maxBytes: number): Promise<Buffer> {
  try {
    return await inflate(body, { maxOutputLength: maxBytes })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') {
      throw new ServiceError('too_large', `the body must have at most ${maxBytes} bytes`, { cause: error })
    }
    throw new ServiceError('malformed', 'the body must be valid gzip, as its Content-Encoding says', { cause: error })
  }
}

function isCompressed(request: FastifyRequest): boolean {
  const given = request.headers['content-encoding']
  if (given === undefined) return false
  const encoding = given.trim().toLowerCase()
  if (encoding === '' || encoding === 'identity') return false
  if (encoding === 'gzip' || encoding === 'x-gzip') return true
  throw new ServiceError('unsupported_media_type', 'unsupported content encoding: use gzip or none')
}
