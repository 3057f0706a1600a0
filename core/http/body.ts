/**
 * How bodies are read. JSON is decoded strictly (UTF-8, bounded depth) and refused where PostgreSQL would refuse or
 * silently alter it; a route without a body takes whatever is sent and ignores it (contract decision 42).
 */
import { isUtf8 } from 'node:buffer'
import type { FastifyInstance } from 'fastify'
import { ServiceError } from '../errors/index.ts'

/** Deeper JSON is no honest document and costs the stack of whoever walks it. */
export const MAX_JSON_DEPTH = 64

/** Registers the parsers. An empty JSON body is no body, as existing clients send it. */
export function registerBodyParsers(app: FastifyInstance): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body, done) => {
    try {
      done(null, parseJsonBody(body as Buffer))
    } catch (error) {
      done(error as Error, undefined)
    }
  })
  app.addContentTypeParser('*', (request, payload, done) => {
    const takesBody = request.routeOptions.schema?.body !== undefined
    if (takesBody) {
      done(
        new ServiceError('unsupported_media_type', 'unsupported content type: the body must be application/json'),
        undefined,
      )
      return
    }
    const limit = request.routeOptions.bodyLimit
    let received = 0
    payload.on('data', (chunk: Buffer) => {
      received += chunk.length
      if (received > limit) payload.destroy(new ServiceError('too_large', `the body must have at most ${limit} bytes`))
    })
    payload.on('end', () => done(null, undefined))
    payload.on('error', (error) => done(error, undefined))
  })
}

/** Bytes of a JSON document to its value; undefined for an empty body. Throws `malformed`. */
export function parseJsonBody(body: Buffer): unknown {
  if (body.length === 0) return undefined
  if (!isUtf8(body)) throw new ServiceError('malformed', 'the body must be UTF-8')
  let value: unknown
  try {
    value = JSON.parse(body.toString('utf8'))
  } catch (error) {
    throw new ServiceError('malformed', `the body must be JSON: ${(error as Error).message}`, { cause: error })
  }
  requireStorable(value, '', 0)
  return value
}

/**
 * Throws `malformed` naming the place of a NUL character (PostgreSQL refuses it), a lone surrogate (it would be stored
 * altered), a number that is no finite double (`1e400`), a key that would reach an object's prototype, or a nesting
 * that is too deep.
 */
export function requireStorable(value: unknown, path: string, depth: number): void {
  if (typeof value === 'string') {
    const fault = textFault(value)
    if (fault !== undefined) throw refusal(path, fault)
    return
  }
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw refusal(path, 'must be a number that a double can hold')
    return
  }
  if (typeof value !== 'object' || value === null) return
  if (depth >= MAX_JSON_DEPTH) throw refusal(path, `must not be nested deeper than ${MAX_JSON_DEPTH} levels`)
  if (Array.isArray(value)) {
    value.forEach((item, index) => requireStorable(item, `${path}/${index}`, depth + 1))
    return
  }
  for (const [key, item] of Object.entries(value)) {
    if (key === '__proto__') throw refusal(path, 'must not have a key __proto__')
    const fault = textFault(key)
    if (fault !== undefined) throw refusal(path, `has a key that ${fault}`)
    requireStorable(item, `${path}/${key}`, depth + 1)
  }
}

/** What is wrong with a text for storage, or undefined. */
export function textFault(text: string): string | undefined {
  if (text.includes('\0')) return 'must not contain a NUL character'
  if (!text.isWellFormed()) return 'must not contain a lone surrogate'
  return undefined
}

function refusal(path: string, message: string): ServiceError {
  return new ServiceError('malformed', `${path === '' ? 'the body' : path.slice(1).replaceAll('/', '.')} ${message}`, {
    details: [{ path, message }],
  })
}
