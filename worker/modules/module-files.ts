/** Files of modules on disk: how they are written, and what they hash to. */
import { createHash } from 'node:crypto'
import type { Hash } from 'node:crypto'
import { createReadStream, writeSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { monotonicMs } from '#core/time.ts'

/** What a write takes at most where the system takes the bytes into its memory, however busy the machine is. */
const QUICK_MS = 50

/** Whether the file is there and has these bytes. */
export async function isFileOf(path: string, hex: string): Promise<boolean> {
  try {
    return (await hashFile(path)).digest('hex') === hex
  } catch {
    return false
  }
}

/** What an interrupted download left, already hashed. A part that is too long begins anew. */
export async function hashPart(path: string, sizeBytes: number): Promise<{ hash: Hash; offset: number }> {
  const size = await stat(path).then(
    (found) => found.size,
    () => 0,
  )
  if (size === 0 || size > sizeBytes) return { hash: createHash('sha256'), offset: 0 }
  return { hash: await hashFile(path), offset: size }
}

/**
 * Writes a file where it stands. To hand a write over to another thread takes more than the write, so this
 * thread does them as long as they are quick. The first one, and all that follow one that was slow, are another thread's
 * until one of those is quick: this one never waits for two slow ones in a row.
 */
export class FileWriter {
  readonly #file: FileHandle
  readonly #now: () => number
  #isQuick = false

  constructor(file: FileHandle, now = monotonicMs) {
    this.#file = file
    this.#now = now
  }

  /** All of the bytes. Undefined: they are written. */
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
