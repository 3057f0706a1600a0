/**
 * Parses request bodies. JSON is decoded strictly (UTF-8, bounded depth) and rejected where PostgreSQL would reject or alter it.
 * A route without a body ignores any body (contract decision 42).
 */
import { isUtf8 } from 'node:buffer'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { isExactInteger, parseWithExactIntegers } from '#core/exact-integers.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { MAX_JSON_DEPTH, SMALL_JSON_BYTES, readJsonInTurns, requireBoundedJson } from '#core/json-text.ts'
import { awaitTurn } from './bulk-turns.ts'
import { markExactIntegers } from './exact-integers.ts'
import type { ErrorDetail } from '#core/errors/index.ts'
import { readWholeBody, tooLarge } from './whole-body.ts'

const NO_BYTES = Buffer.alloc(0)
/** The default limit of items in a body that is a list. */
const MAX_BODY_ITEMS = 10_000

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The limit of items in a body that is a list; checked before the items are parsed. */
    maxItems?: number
    /** The limit of a body that is one object, where it contains a long text; checked before it is parsed. */
    maxWholeBytes?: number
  }
}

/** Registers the parsers. An empty JSON body counts as absent, as existing clients send it. */
export function registerBodyParsers(app: FastifyInstance): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', (request, payload, done) => {
    readWholeBody(request, payload, (error, body = NO_BYTES) => {
      if (error !== null) done(error)
      else parseJsonOf(request, body, done)
    })
  })
  app.addContentTypeParser('*', (request, payload, done) => {
    if (takesBody(request)) {
      done(
        new ServiceError('unsupported_media_type', 'unsupported content type; the body must be application/json'),
        undefined,
      )
      return
    }
    ignoreBody(payload, request.routeOptions.bodyLimit, done)
  })
}

/** RFC 7396. Only routes on this scope whose body is a merge patch accept the type. */
export const MERGE_PATCH_TYPE = 'application/merge-patch+json'

/** Parses merge patches on the scope as other JSON. */
export function acceptMergePatches(scope: Pick<FastifyInstance, 'addContentTypeParser'>): void {
  scope.addContentTypeParser(MERGE_PATCH_TYPE, (request, payload, done) => {
    readWholeBody(request, payload, (error, body = NO_BYTES) => {
      if (error !== null) done(error)
      else parseJsonOf(request, body, done)
    })
  })
}

function parseJsonOf(
  request: FastifyRequest,
  body: Buffer,
  done: (error: Error | null, value?: unknown) => void,
): void {
  try {
    if (!takesBody(request)) done(null, undefined)
    else if (body.length <= SMALL_JSON_BYTES) done(null, parseExactBody(body))
    else {
      const { maxItems = MAX_BODY_ITEMS, maxWholeBytes } = request.facts.config
      const most = maxWholeBytes === undefined ? {} : { maxWholeBytes }
      const reading = awaitTurn(request).then(() => readJsonInTurns(body, { maxItems, ...most, parse: parseExact }))
      // The handler runs in a turn of its own: the validation of a large body takes as long as its parsing.
      // oxlint-disable-next-line promise/no-callback-in-promise -- a callback is how a parser of both kinds answers
      reading.then((value) => void setImmediate(() => done(null, value)), done)
    }
  } catch (error) {
    done(error as Error, undefined)
  }
}

/** Throws `unsupported_media_type` for a compressed body: only the routes of messages accept one. */
function takesBody(request: FastifyRequest): boolean {
  if (request.routeOptions.schema?.body === undefined) return false
  const encoding = request.headers['content-encoding']
  if (encoding !== undefined && encoding !== '' && encoding.trim().toLowerCase() !== 'identity') {
    throw new ServiceError('unsupported_media_type', 'unsupported content encoding; the body must not be compressed')
  }
  return true
}

/** Reads the body to its end and drops it. Above the limit, the error is sent at once and the connection is closed. */
function ignoreBody(payload: NodeJS.ReadableStream, limit: number, done: (error: Error | null) => void): void {
  let received = 0
  const finish = (error: Error | null) => {
    payload.removeListener('data', onData).removeListener('end', onEnd).removeListener('error', finish)
    done(error)
  }
  const onEnd = () => finish(null)
  const onData = (chunk: Buffer | string) => {
    received += chunk.length
    if (received > limit) finish(tooLarge(limit))
  }
  payload.on('data', onData).on('end', onEnd).on('error', finish)
}

/** The value of a JSON document; undefined for an empty body. Throws `malformed`, and `too_large` for too many items. */
export function parseJsonBody(body: Buffer): unknown {
  if (body.length === 0) return undefined
  requireBoundedJson(body)
  return parseJson(body, undefined)
}

/** Parses a body as `parseJsonBody` does, and returns integers above 2^53 as raw JSON. */
export function parseExactBody(body: Buffer): unknown {
  if (body.length === 0) return undefined
  requireBoundedJson(body)
  return parseExact(body, undefined)
}

function parseExact(bytes: Buffer, index: number | undefined): unknown {
  let isExact = false
  const value = parseJson(bytes, index, (text) => parseWithExactIntegers(text, () => (isExact = true)))
  if (isExact) markExactIntegers(value)
  return value
}

/** The value of a document, or of the list item with this index. */
function parseJson(bytes: Buffer, index: number | undefined, parse: (text: string) => unknown = JSON.parse): unknown {
  if (!isUtf8(bytes)) throw new ServiceError('malformed', 'the body must be UTF-8')
  let value: unknown
  try {
    value = parse(bytes.toString('utf8'))
  } catch (error) {
    const item = index === undefined ? '' : ` in item ${index}`
    throw new ServiceError('malformed', `invalid JSON${item}${placeOf(error as Error)}`)
  }
  if (index === undefined) requireStorable(value, '', 0)
  else requireStorable(value, `/${index}`, 1)
  return value
}

/** The position of the error. The engine's own message quotes the body, which may contain a password. */
function placeOf(error: Error): string {
  const place = /\(line (\d+) column (\d+)\)$/.exec(error.message)
  if (place !== null) return ` at line ${place[1]}, column ${place[2]}`
  return error.message.startsWith('Unexpected end') ? ': unexpected end' : ''
}

/**
 * Throws `malformed` with the path of a NUL character (PostgreSQL refuses it), a lone surrogate (it would be stored altered), a
 * number that is not a finite double (`1e400`), a key that would set an object's prototype, or a nesting that is too deep.
 */
export function requireStorable(value: unknown, path: string, depth: number): void {
  const fault = storageFault(value, depth)
  if (fault !== undefined) throw refusal(`${path}${fault.path}`, fault.message)
}

/** The first fault, with its path. The path is built on the way back, because almost every body is valid. */
function storageFault(value: unknown, depth: number): ErrorDetail | undefined {
  if (typeof value === 'string') return ownFault(textFault(value))
  if (typeof value === 'number') {
    return Number.isFinite(value) ? undefined : ownFault('must be a finite double')
  }
  if (typeof value !== 'object' || value === null || isExactInteger(value)) return undefined
  if (depth >= MAX_JSON_DEPTH) return ownFault(`must not be nested deeper than ${MAX_JSON_DEPTH} levels`)
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      const fault = storageFault(value[index], depth + 1)
      if (fault !== undefined) return below(String(index), fault)
    }
    return undefined
  }
  for (const key of Object.keys(value)) {
    if (key === '__proto__') return ownFault('must not have a key __proto__')
    const keyFault = textFault(key)
    if (keyFault !== undefined) return ownFault(`has a key that ${keyFault}`)
    const fault = storageFault((value as Record<string, unknown>)[key], depth + 1)
    if (fault !== undefined) return below(key, fault)
  }
  return undefined
}

const ownFault = (message: string | undefined) => (message === undefined ? undefined : { path: '', message })
const below = (name: string, fault: ErrorDetail) => ({ path: `/${name}${fault.path}`, message: fault.message })

/** Returns the reason why a text cannot be stored; undefined when it can. */
export function textFault(text: string): string | undefined {
  if (text.includes('\0')) return 'must not contain a NUL character'
  if (!text.isWellFormed()) return 'must not contain a lone surrogate'
  return undefined
}

function refusal(path: string, message: string): ServiceError {
  return path === ''
    ? new ServiceError('malformed', `the body ${message}`, { details: [{ path, message }] })
    : refusedField(path, message)
}
