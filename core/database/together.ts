/** Statements that do not wait for each other, on their way in one write. */
import { Socket } from 'node:net'
import pg from 'pg'

/** A connection whose socket is made here, so that what is written to it can be held together. */
export class SocketClient extends pg.Client {
  readonly socket: Socket

  constructor(config: pg.ClientConfig = {}) {
    const socket = new Socket()
    // Not spread: a pool hides the password from enumeration.
    const own = { stream: { value: () => socket, enumerable: true } }
    super(Object.defineProperties({}, { ...Object.getOwnPropertyDescriptors(config), ...own }))
    this.socket = socket
  }
}

/**
 * What `send` asks of a connection that may have several statements under way goes out in one write: each write wakes the
 * server, which costs more than a small statement.
 */
export function sendTogether(client: pg.ClientBase, send: () => void): void {
  const socket = socketOf(client)
  socket?.cork()
  try {
    send()
  } finally {
    socket?.uncork()
  }
}

/** What the connection writes to; undefined for one that was made elsewhere. */
export function socketOf(client: pg.ClientBase): Socket | undefined {
  return client instanceof SocketClient ? client.socket : undefined
}
