/** The path of a worker's status socket. */
import { createHash } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

/** Limit of socket paths: 108 bytes including the terminator on Linux, 104 on macOS. */
const MAX_PATH_BYTES = 100

/**
 * Returns a path in the worker's folder, which only its owner can enter. It is a socket in the folder for temporary files if that path is
 * too long, and a named pipe on Windows.
 */
export function statusPath(folder: string): string {
  const path = join(resolve(folder), 'status.sock')
  const hash = createHash('sha256').update(path).digest('hex').slice(0, 16)
  if (process.platform === 'win32') return `\\\\.\\pipe\\skein-worker-${hash}`
  return Buffer.byteLength(path) <= MAX_PATH_BYTES ? path : join(tmpdir(), `skein-worker-${hash}.sock`)
}
