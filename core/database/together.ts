/** Statements that do not wait for each other, on their way in one write. */
import type { Writable } from 'node:stream'
import type { Client } from 'pg'

/**
 * What `send` asks of a connection that may have several statements under way goes out in one write: each write wakes the
 * server, which costs more than a small statement.
 */
export function sendTogether(client: Client, send: () => void): void {
  const { connection } = client as unknown as { connection?: { stream: Writable } }
  connection?.stream.cork()
  try {
    send()
  } finally {
    connection?.stream.uncork()
  }
}
