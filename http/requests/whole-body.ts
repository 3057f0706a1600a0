/** Reads the bytes of a request body, up to the limit of its route. */
import type { IncomingMessage } from 'node:http'
import type { FastifyRequest } from 'fastify'
import { ServiceError } from '#core/errors/index.ts'

type Done = (error: Error | null, body?: Buffer) => void

/**
 * Calls back with the bytes, `too_large`, or the error of an aborted request. It replaces the reading of Fastify's parsers: a body that
 * arrived together with its headers, as most do, is taken as a whole, without the events of a stream. `endBody` ends its stream.
 */
export function readWholeBody(request: FastifyRequest, payload: IncomingMessage, done: Done): void {
  const limit = request.facts.bodyLimit
  const length = Number(request.headers['content-length'])
  if (length > limit) return done(tooLarge(limit))
  // The parser of Node continues with the body before microtasks run.
  queueMicrotask(() => {
    if (length > 0 && payload.readableLength === length && payload.readableFlowing === null)
      // Without a size, only its first piece is read.
      done(null, payload.read(length) as Buffer)
    else collect(payload, limit, done)
  })
}

/**
 * A stream ends only when it is read after its last byte; Node keeps the request of a connection until then. One that flows ends by
 * itself.
 */
export function endBody(payload: IncomingMessage): void {
  if (!payload.complete || payload.readableEnded || payload.readableFlowing !== null) return
  do payload.read()
  while (payload.readableLength > 0)
}

function collect(payload: IncomingMessage, limit: number, done: Done): void {
  const chunks: Buffer[] = []
  let received = 0
  const finish = (error: Error | null, body?: Buffer) => {
    payload.off('data', onData).off('end', onEnd).off('error', onError)
    done(error, body)
  }
  const onData = (chunk: Buffer) => {
    received += chunk.length
    if (received > limit) finish(tooLarge(limit))
    else chunks.push(chunk)
  }
  const onEnd = () => finish(null, chunks.length === 1 ? chunks[0] : Buffer.concat(chunks, received))
  const onError = (error: Error) => finish(Object.assign(error, { statusCode: 400 }))
  payload.on('data', onData).on('end', onEnd).on('error', onError)
}

/** The error for a body above its limit. */
export function tooLarge(limit: number): ServiceError {
  return new ServiceError('too_large', `the body must have at most ${limit} bytes`)
}
