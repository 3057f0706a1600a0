/** Files of modules on disk: how they are written, and what they hash to. */
import { createHash } from 'node:crypto'
import type { Hash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'

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

/** All of the bytes, where the file stands. */
export async function writeWhole(file: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let begin = 0; begin < bytes.length;) {
    begin += (await file.write(bytes, begin)).bytesWritten
  }
}

async function hashFile(path: string): Promise<Hash> {
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer)
  return hash
}
