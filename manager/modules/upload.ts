/** An uploaded module, read and judged before it is stored. Nothing here compiles anything. */
import { createHash } from 'node:crypto'
import { examineModule } from '#core/wasm/index.ts'
import type { NewModule } from './repository.ts'

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
