/** An uploaded module: gathered within its bound, read and judged before it is stored. Nothing here compiles anything. */
import { createHash } from 'node:crypto'
import { ServiceError } from '#core/errors/index.ts'
import { examineModule } from '#core/wasm/index.ts'
import type { NewModule } from './repository.ts'

/** Largest module that can be uploaded. */
export const MAX_MODULE_BYTES = 64 * 1024 * 1024
/** Uploads that are gathered in memory at a time; more are told to come again. */
const MAX_CONCURRENT_UPLOADS = 4
let uploads = 0

/** Reads the stream to its end. Throws `too_large` above the bound, `unavailable` when too many uploads run. */
export async function gatherModule(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  if (uploads >= MAX_CONCURRENT_UPLOADS) {
    throw new ServiceError('unavailable', `${MAX_CONCURRENT_UPLOADS} modules are being uploaded, try again`, {
      retryAfterSeconds: 1,
    })
  }
  uploads += 1
  try {
    const parts: Buffer[] = []
    let size = 0
    for await (const part of stream) {
      size += part.length
      if (size > MAX_MODULE_BYTES)
        throw new ServiceError('too_large', `a module may have at most ${MAX_MODULE_BYTES} bytes`)
      parts.push(part)
    }
    return Buffer.concat(parts)
  } finally {
    uploads -= 1
  }
}

/**
 * What the module is. Throws `malformed` when it is no WebAssembly, breaks a bound, or imports what no worker offers,
 * each with a sentence that names it.
 */
export function judgeModule(bytes: Uint8Array): NewModule {
  return {
    digest: `sha256:${createHash('sha256').update(bytes).digest('hex')}`,
    sizeBytes: bytes.byteLength,
    ...examineModule(bytes),
    bytes,
  }
}
