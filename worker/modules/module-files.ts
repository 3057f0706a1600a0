/** Files of modules on disk: writing and hashing. */
import { createHash } from 'node:crypto'
import type { Hash } from 'node:crypto'
import { createReadStream, writeSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { monotonicMs } from '#core/time.ts'

/** Longest write that only copies to the page cache, on any machine. */
const QUICK_MS = 50

/** Whether the file exists and has this digest. */
export async function isFileOf(path: string, hex: string): Promise<boolean> {
  try {
    return (await hashFile(path)).digest('hex') === hex
  } catch {
    return false
  }
}

/** The partial file of an interrupted download, hashed. A file that is too long is restarted. */
export async function hashPart(path: string, sizeBytes: number): Promise<{ hash: Hash; offset: number }> {
  const size = await stat(path).then(
    (found) => found.size,
    () => 0,
  )
  if (size === 0 || size > sizeBytes) return { hash: createHash('sha256'), offset: 0 }
  return { hash: await hashFile(path), offset: size }
}

/**
 * Writes a file in this thread or in the thread pool. Passing a write to another thread costs more than the write, so
 * this thread writes as long as writes are quick. The first write, and all after a slow one, use another thread until one
 * of those is quick: this thread never waits for two slow writes in a row.
 */
export class FileWriter {
  readonly #file: FileHandle
  readonly #now: () => number
  #isQuick = false

  constructor(file: FileHandle, now = monotonicMs) {
    this.#file = file
    this.#now = now
  }

  /** Writes all bytes. Undefined: they are written already. */
  write(bytes: Uint8Array): Promise<void> | undefined {
    if (!this.#isQuick) return this.#writeAside(bytes)
    const beganMs = this.#now()
    for (let begin = 0; begin < bytes.length;) begin += writeSync(this.#file.fd, bytes, begin)
    this.#isQuick = this.#now() - beganMs < QUICK_MS
    return undefined
  }

  async #writeAside(bytes: Uint8Array): Promise<void> {
    const beganMs = this.#now()
    for (let begin = 0; begin < bytes.length;) begin += (await this.#file.write(bytes, begin)).bytesWritten
    this.#isQuick = this.#now() - beganMs < QUICK_MS
  }
}

async function hashFile(path: string): Promise<Hash> {
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer)
  return hash
}
