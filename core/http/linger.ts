/**
 * Answers to callers who are still sending: a refused body, a wrong credential. A connection that is closed while bytes of the
 * caller are unread is reset, and the reset overtakes the answer. So its own side is closed, and the rest is read and dropped
 * until the caller closes his, for a bounded time.
 */
import type { Socket } from 'node:net'
import type { Connections } from './connections.ts'

/** A caller who has not finished sending by then is cut off. */
const LINGER_MS = 3000

/** Listener of new connections. Node closes one by `destroySoon` when the last answer is sent. */
export function letLinger(socket: Socket, connections: Connections): void {
  const close = socket.destroySoon.bind(socket)
  socket.destroySoon = () => {
    if (connections.of(socket)?.isSending !== true || socket.readableEnded) close()
    else linger(socket)
  }
}

/** Sends what is written, and reads on until the other side ends. */
export function linger(socket: Socket): void {
  const timer = setTimeout(() => socket.destroy(), LINGER_MS)
  timer.unref()
  socket.once('close', () => clearTimeout(timer))
  socket.once('end', () => socket.destroy())
  socket.end()
  socket.resume()
}
