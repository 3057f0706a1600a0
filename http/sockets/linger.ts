/**
 * Lingering close: responses to callers that are still sending, such as errors for a refused body. Closing a connection with
 * unread bytes resets it, and the reset can discard the response. So the response is sent, and the connection is closed only when
 * the rest of the request has been read and dropped, within a bounded time.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'

/** The maximum time for which the rest of the request is read. */
const LINGER_MS = 3000

/** `onSend` hook. */
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

/** The request has a body that has not arrived completely. `readableEnded` covers parsers that do not set `complete`. */
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

/** Lingering close for a socket without a request: sends the written bytes and reads until the other side ends. */
export function linger(socket: Socket): void {
  const timer = setTimeout(() => socket.destroy(), LINGER_MS)
  timer.unref()
  socket.once('close', () => clearTimeout(timer))
  socket.once('end', () => socket.destroy())
  socket.end()
  socket.resume()
}
