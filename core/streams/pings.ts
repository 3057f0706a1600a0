/**
 * Pings of WebSockets. They find peers that are gone, and keep idle connections open through proxies, which close them after 50 or 60
 * seconds (HAProxy, nginx).
 */

/** The interval of pings; a socket from which nothing was heard until the next ping is closed. */
export const PING_MS = 30_000

/** The part of a socket of the package `ws` that is used. */
export type PingedSocket = {
  readonly readyState: number
  readonly OPEN: number
  readonly isPaused: boolean
  ping(): void
  terminate(): void
  on(event: 'pong', listener: () => void): unknown
  once(event: 'close', listener: () => void): unknown
}

/** Pings until the socket is closed. Call the returned function for each message: a peer that sends is there. */
export function pingPeriodically(socket: PingedSocket, everyMs = PING_MS): () => void {
  let isHeard = true
  const hear = () => void (isHeard = true)
  const pings = setInterval(() => {
    // A paused socket reads no pong.
    if (!isHeard && !socket.isPaused) return socket.terminate()
    isHeard = false
    if (socket.readyState === socket.OPEN) socket.ping()
  }, everyMs)
  socket.on('pong', hear)
  socket.once('close', () => clearInterval(pings))
  return hear
}
