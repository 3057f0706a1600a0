/**
 * Serves the status of the worker on a local socket. Each connection receives one JSON document. Only users with access to
 * the worker's folder can connect.
 */
import { chmod, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import type { Server } from 'node:net'
import type { WorkerStatus } from './status.ts'

/** A connection whose peer reads nothing for this long is closed. */
const WRITE_DEADLINE_MS = 2_000
const MAX_CONNECTIONS = 8

export type StatusServer = { close: () => Promise<void> }

/** Listens on `path`, which `statusPath` returns. Removes a socket file that a killed process left there. */
export async function serveStatus(path: string, read: () => WorkerStatus): Promise<StatusServer> {
  const isFile = process.platform !== 'win32'
  if (isFile) await rm(path, { force: true })
  const server = createServer((socket) => {
    socket.setTimeout(WRITE_DEADLINE_MS, () => socket.destroy())
    socket.on('error', () => undefined)
    socket.end(JSON.stringify(read()))
  })
  server.maxConnections = MAX_CONNECTIONS
  await listen(server, path)
  if (isFile) await chmod(path, 0o600)
  return {
    async close() {
      await new Promise((resolve) => {
        server.close(resolve)
      })
      if (isFile) await rm(path, { force: true })
    },
  }
}

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(path, () => {
      server.off('error', reject)
      // A failure of the status server must not end the worker.
      server.on('error', () => undefined)
      resolve()
    })
  })
}
