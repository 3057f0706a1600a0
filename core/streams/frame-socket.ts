/** Sockets of text frames that a service of another room serves: the adapter owns the socket, the service the frames. */
import type { IncomingHttpHeaders } from 'node:http'
import type { StreamOwner } from './limits.ts'

export type FrameRequest = { headers: IncomingHttpHeaders; address: string }

export type FrameSocket = {
  /** Counts the socket against the limits of its owner, once its caller is known. Throws `rate_limited`, `unavailable`. */
  admit(owner: StreamOwner): void
  /** Sends a text frame. A reader that takes too little is disconnected. */
  send(text: string): void
  /** Resolves when little waits for the reader, or the socket is closed. */
  drained(): Promise<void>
  /** Closes the socket with a code of RFC 6455. */
  close(code: number, reason: string): void
}

export type FrameSession = {
  /** Bytes that the service keeps for this socket. Sessions may share them. */
  readonly keptBytes: number
  /** Handles a text frame; the next one is passed when it resolves. Never rejects. */
  take(text: string): Promise<void>
  /** The socket was closed, or its reader is too slow. May be called again. */
  closed(): void
}

export type FrameEndpoint = {
  /** Opens a session; undefined for a path of others. */
  match(path: string): ((request: FrameRequest, socket: FrameSocket) => FrameSession) | undefined
}
