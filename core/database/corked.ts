/** Several statements in one write. */
import { Socket } from 'node:net'
import pg from 'pg'
import { lookUpName } from '../name-lookup.ts'

/** A socket that looks up the name of the server with `lookUpName`: `pg` has no setting for it. */
class NamedSocket extends Socket {
  /** As `pg` calls it: a port and a host, or the path of a Unix socket. */
  override connect(...target: unknown[]): this {
    const [port, host] = target
    if (typeof port !== 'number' || typeof host !== 'string') return super.connect(...(target as [string]))
    return super.connect({ port, host, lookup: lookUpName })
  }
}

/** A connection that owns its socket, so that writes to it can be corked. */
export class SocketClient extends pg.Client {
  readonly socket: Socket

  constructor(config: pg.ClientConfig = {}) {
    const socket = new NamedSocket()
    // The config is not spread: a pool makes the password non-enumerable.
    const own = { stream: { value: () => socket, enumerable: true } }
    super(Object.defineProperties({}, { ...Object.getOwnPropertyDescriptors(config), ...own }))
    this.socket = socket
  }
}

/**
 * Sends the statements of `send` in one write, on a connection that allows several statements in flight: each write wakes the
 * server, which costs more than a small statement.
 */
export function sendCorked(client: pg.ClientBase, send: () => void): void {
  const socket = socketOf(client)
  socket?.cork()
  try {
    send()
  } finally {
    socket?.uncork()
  }
}

/** The socket of the connection; undefined for a connection of another class. */
export function socketOf(client: pg.ClientBase): Socket | undefined {
  return client instanceof SocketClient ? client.socket : undefined
}
