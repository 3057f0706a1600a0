/** From the bytes of a layer to the bytes of a module: as they are, or the one `.wasm` of an archive (rule 4). */
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import { errorCodeOf } from '#core/transfer/index.ts'
import type { LayerForm } from './media-types.ts'
import { moduleInvalid } from './refusal.ts'
import { readTar } from './tar.ts'

export type UnpackLimits = { maxModuleBytes: number }

const MAX_ENTRIES = 10_000
/** What an archive may unpack to, beside the module: an image layer may hold a README, not a file system. */
const MAX_BESIDE_BYTES = 64 * 1024 * 1024
/** The WebAssembly specification, "Binary Format", "Modules": the magic of modules and components alike. */
const MAGIC = Buffer.from('\0asm', 'latin1')
const MAX_SHOWN = 5

/**
 * The module in a layer. Throws `malformed` when it is no WebAssembly binary, when an archive holds none or several
 * `.wasm` files, a path that leaves it, or more bytes than the limits allow. An error may come after the last byte, so
 * nothing counts before the end.
 */
export function unpackModule(
  form: LayerForm,
  mediaType: string,
  layer: AsyncIterable<Buffer>,
  limits: UnpackLimits,
): AsyncGenerator<Buffer> {
  switch (form) {
    case 'wasm':
    case 'any':
      return checkedModule(layer, `layer ${mediaType}`, limits)
    case 'tar':
      return checkedModule(wasmOfArchive(layer, limits), `archive layer ${mediaType}`, limits)
    case 'tar+gzip':
      return checkedModule(wasmOfArchive(gunzip(layer), limits), `archive layer ${mediaType}`, limits)
  }
}

async function* checkedModule(
  bytes: AsyncIterable<Buffer>,
  what: string,
  { maxModuleBytes }: UnpackLimits,
): AsyncGenerator<Buffer> {
  let head: Buffer = Buffer.alloc(0)
  let sizeBytes = 0
  for await (const piece of bytes) {
    sizeBytes += piece.length
    if (sizeBytes > maxModuleBytes) throw moduleInvalid(`${what} holds a module of more than ${maxModuleBytes} bytes`)
    if (head.length < MAGIC.length) {
      head = Buffer.concat([head, piece.subarray(0, MAGIC.length - head.length)])
      if (!head.equals(MAGIC.subarray(0, head.length))) throw moduleInvalid(`${what} holds no WebAssembly binary`)
    }
    yield piece
  }
  if (head.length < MAGIC.length) throw moduleInvalid(`${what} holds no WebAssembly binary`)
}

async function* wasmOfArchive(
  archive: AsyncIterable<Buffer>,
  { maxModuleBytes }: UnpackLimits,
): AsyncGenerator<Buffer> {
  const found: string[] = []
  const others: string[] = []
  const limits = { maxEntries: MAX_ENTRIES, maxTotalBytes: maxModuleBytes + MAX_BESIDE_BYTES }
  for await (const entry of readTar(archive, limits)) {
    if (!entry.path.toLowerCase().endsWith('.wasm') || entry.type === 'directory') {
      if (others.length < MAX_SHOWN) others.push(entry.path.slice(0, 100))
      continue
    }
    found.push(entry.path.slice(0, 100))
    if (entry.type !== 'file')
      throw moduleInvalid(`archive has ${JSON.stringify(found[0])} as a ${entry.type}, not as a file`)
    if (found.length > 1) throw moduleInvalid(`archive has more than one .wasm file: ${found.join(', ')}`)
    yield* entry.content
  }
  if (found.length === 0) {
    throw moduleInvalid(`archive has no .wasm file; it has ${others.length === 0 ? 'no files' : others.join(', ')}`)
  }
}

/** Gunzips piece by piece; what is no gzip, or ends early, is `malformed`. */
async function* gunzip(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const stream = createGunzip()
  const fed = pipeline(source, stream)
  fed.catch(() => undefined) // what goes wrong in it comes out of the stream, too
  try {
    for await (const piece of stream) yield piece as Buffer
  } catch (error) {
    const code = errorCodeOf(error)
    if (code?.startsWith('Z_') === true) throw moduleInvalid(`layer is no gzip stream, or ends early (${code})`)
    throw error
  } finally {
    stream.destroy()
    await fed.catch(() => undefined) // the source is closed when the caller goes on
  }
}
