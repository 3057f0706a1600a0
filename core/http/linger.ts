/**
 * Answers to callers who are still sending: a refused body, a wrong credential. A connection that is closed while bytes of the
 * caller are unread is reset, and the reset overtakes the answer. So the answer is sent whole and ended only when the rest of the
 * request has been read and dropped, within a bounded time.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'

/** A caller who has not finished sending by then is cut off. */
const LINGER_MS = 3000

/** Hook of answers. */
export function lingerOnSend(
  request: FastifyRequest,
  reply: FastifyReply,
  payload: unknown,
  done: (error: null, payload: unknown) => void,
): void {
  if (!isSending(request.raw) || !(typeof payload === 'string' || Buffer.isBuffer(payload))) return done(null, payload)
  void reply.header('content-length', Buffer.byteLength(payload))
  done(null, Readable.from(untilRead(payload, request.raw), { objectMode: false }))
}

async function* untilRead(payload: string | Buffer, request: IncomingMessage): AsyncGenerator<string | Buffer> {
  yield payload
  await readRest(request)
}

/** Ends a response whose body is complete. */
export async function endWhenRead(request: IncomingMessage, response: ServerResponse): Promise<void> {
  if (isSending(request)) await readRest(request)
  response.end()
}

/** There is a body, and it has not arrived whole; what was read to its end has, also where no parser says `complete`. */
function isSending({ complete, readableEnded, headers }: IncomingMessage): boolean {
  return (
    !complete &&
    !readableEnded &&
    (headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0)
  )
}

function readRest(request: IncomingMessage): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(finish, LINGER_MS)
    timer.unref()
    function finish(): void {
      clearTimeout(timer)
      resolve()
    }
    request.once('end', finish).once('close', finish).resume()
  })
}

/** The same for bytes that are no request: sends what is written, and reads on until the other side ends. */
export function linger(socket: Socket): void {
  const timer = setTimeout(() => socket.destroy(), LINGER_MS)
  timer.unref()
  socket.once('close', () => clearTimeout(timer))
  socket.once('end', () => socket.destroy())
  socket.end()
  socket.resume()
}
