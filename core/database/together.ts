/** Statements that do not wait for each other, on their way in one write. */
import type { Writable } from 'node:stream'
import type { ClientBase } from 'pg'

/**
 * What `send` asks of a connection that may have several statements under way goes out in one write: each write wakes the
 * server, which costs more than a small statement.
 */
export function sendTogether(client: ClientBase, send: () => void): void {
  const stream = streamOf(client)
  stream?.cork()
  try {
    send()
  } finally {
    stream?.uncork()
  }
}

/** What the connection writes to; undefined before it connects. */
export function streamOf(client: ClientBase): Writable | undefined {
  return (client as unknown as { connection?: { stream: Writable } }).connection?.stream
}
