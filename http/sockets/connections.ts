/**
 * Tracks the requests of each connection. A client may pipeline requests (RFC 9112 section 9.3.2): a bounded number of them is
 * handled at a time, further ones wait, and nothing is read from the connection while one waits.
 */
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/** The maximum number of requests of one connection that are handled at a time. */
const MAX_UNANSWERED = 16

export class Connections {
  readonly #open = new Map<Socket, Connection>()

  /** Listener for new connections. */
  readonly open = (socket: Socket): void => {
    this.#open.set(socket, new Connection(socket))
    socket.once('close', () => this.#open.delete(socket))
  }

  of(socket: Socket): Connection | undefined {
    return this.#open.get(socket)
  }

  /** Closes every connection after the response to the last request that it has sent. */
  closeWhenAnswered(): void {
    for (const connection of this.#open.values()) connection.closeWhenAnswered()
  }
}

export class Connection {
  readonly #socket: Socket
  /** The responses are in the order of their requests, which is the order in which Node sends them. */
  readonly #unanswered: ServerResponse[] = []
  readonly #waiting: (() => void)[] = []

  constructor(socket: Socket) {
    this.#socket = socket
    // Reading the body of a request resumes the socket too.
    socket.on('resume', () => {
      if (this.#waiting.length > 0) socket.pause()
    })
  }

  /** A response has begun, so nothing else can be written. */
  get isAnswering(): boolean {
    return this.#unanswered[0]?.headersSent === true
  }

  /** Calls `handle` at once, or when the number of earlier unanswered requests is below the limit. */
  take(response: ServerResponse, handle: () => void): void {
    response.once('close', this.#onAnswered)
    if (this.#unanswered.push(response) <= MAX_UNANSWERED) {
      handle()
      return
    }
    this.#waiting.push(handle)
    this.#socket.pause()
  }

  readonly #onAnswered = () => {
    this.#unanswered.shift()
    const next = this.#waiting.shift()
    if (next === undefined) return
    if (this.#waiting.length === 0) this.#socket.resume()
    next()
  }

  closeWhenAnswered(): void {
    const last = this.#unanswered.at(-1)
    if (last !== undefined && !last.headersSent) last.setHeader('Connection', 'close')
  }
}
