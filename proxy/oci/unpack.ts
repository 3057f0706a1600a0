/** Extracts a module from the bytes of a layer: unchanged, or the only `.wasm` file of an archive (rule 4). */
import { pipeline } from 'node:stream/promises'
import { constants, createGunzip, createZstdDecompress } from 'node:zlib'
import type { Gunzip, ZstdDecompress } from 'node:zlib'
import type { ServiceError } from '#core/errors/index.ts'
import { errorCodeOf } from '#core/transfer/index.ts'
import { ACCEPTED_LAYERS } from './manifest.ts'
import type { ModuleLayer } from './manifest.ts'
import { isArchive } from './media-types.ts'
import type { LayerForm } from './media-types.ts'
import { moduleInvalid } from './refusal.ts'
import { readTar } from './tar.ts'

export type UnpackLimits = { maxModuleBytes: number }

const MAX_ENTRIES = 10_000
/** Size of other files in an archive: an image layer can contain a README, not a file system. */
const MAX_BESIDE_BYTES = 64 * 1024 * 1024
/** The WebAssembly specification, "Binary Format", "Modules": the magic number of modules and components. */
const MAGIC = Buffer.from('\0asm', 'latin1')
/** Other known file types, for the error message. */
const KNOWN_STARTS = [
  { magic: Buffer.from('1f8b', 'hex'), kind: 'gzip' },
  { magic: Buffer.from('28b52ffd', 'hex'), kind: 'zstd' },
  { magic: Buffer.from('504b0304', 'hex'), kind: 'zip' },
]
/** 8 MiB: RFC 8878 section 3.1.1.1.2 requires it from decoders, and the levels of image builders need no more. */
const MAX_ZSTD_WINDOW_LOG = 23
const MAX_SHOWN = 5
const MAX_TYPE_CHARS = 120

/**
 * The module in a layer. Throws `malformed` for bytes that are not a WebAssembly binary, and for an archive with no or
 * several `.wasm` files, a path outside of it, or more bytes than the limits allow. An error can come after the last
 * byte, so the bytes must not be used before the end.
 */
export async function* unpackModule(
  { form, descriptor, configType }: ModuleLayer,
  layer: AsyncIterable<Buffer>,
  limits: UnpackLimits,
): AsyncGenerator<Buffer> {
  const what = `layer ${shown(descriptor.mediaType)} (config ${shown(configType)})`
  const source = layer[Symbol.asyncIterator]()
  try {
    const first = await readFirst(source)
    const bytes = restOf(first, source)
    if (!isArchive(form) || startsAs(first, MAGIC)) yield* checkedModule(bytes, what, limits)
    else yield* checkedModule(wasmOfArchive(DECOMPRESSED[form](bytes), limits), `the .wasm file of ${what}`, limits)
  } finally {
    await source.return?.()
  }
}

const DECOMPRESSED: Record<LayerForm, (bytes: AsyncIterable<Buffer>) => AsyncIterable<Buffer>> = {
  wasm: (bytes) => bytes,
  any: (bytes) => bytes,
  tar: (bytes) => bytes,
  'tar+gzip': (bytes) => decompress(bytes, createGunzip(), 'gzip'),
  'tar+zstd': (bytes) =>
    decompress(
      bytes,
      createZstdDecompress({ params: { [constants.ZSTD_d_windowLogMax]: MAX_ZSTD_WINDOW_LOG } }),
      'zstd',
    ),
}

/** The first bytes, at least the length of the magic number if available. */
async function readFirst(source: AsyncIterator<Buffer>): Promise<Buffer> {
  let first: Buffer = Buffer.alloc(0)
  while (first.length < MAGIC.length) {
    const next = await source.next()
    if (next.done === true) break
    first = first.length === 0 ? next.value : Buffer.concat([first, next.value])
  }
  return first
}

async function* restOf(first: Buffer, source: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  if (first.length > 0) yield first
  for (let next = await source.next(); next.done !== true; next = await source.next()) yield next.value
}

const startsAs = (bytes: Buffer, magic: Buffer) => bytes.subarray(0, magic.length).equals(magic)

async function* checkedModule(
  bytes: AsyncIterable<Buffer>,
  what: string,
  { maxModuleBytes }: UnpackLimits,
): AsyncGenerator<Buffer> {
  let head: Buffer = Buffer.alloc(0)
  let sizeBytes = 0
  for await (const piece of bytes) {
    sizeBytes += piece.length
    if (sizeBytes > maxModuleBytes)
      throw moduleInvalid(`${what} contains a module of more than ${maxModuleBytes} bytes`)
    if (head.length < MAGIC.length) {
      head = Buffer.concat([head, piece.subarray(0, MAGIC.length - head.length)])
      if (!head.equals(MAGIC.subarray(0, head.length))) throw noModule(what, head)
    }
    yield piece
  }
  if (head.length < MAGIC.length) throw noModule(what, head)
}

function noModule(what: string, head: Buffer): ServiceError {
  const kind = KNOWN_STARTS.find(({ magic }) => startsAs(head, magic))?.kind
  const found =
    head.length === 0
      ? 'it is empty'
      : `it begins with ${head.toString('hex').replaceAll(/..(?=.)/g, '$& ')}${kind === undefined ? '' : ` (${kind})`}`
  return moduleInvalid(`${what} contains no WebAssembly binary: ${found}; accepted are ${ACCEPTED_LAYERS}`)
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

/** Decompresses in pieces; invalid or truncated data is `malformed`. */
async function* decompress(
  source: AsyncIterable<Buffer>,
  stream: Gunzip | ZstdDecompress,
  kind: 'gzip' | 'zstd',
): AsyncGenerator<Buffer> {
  const fed = pipeline(source, stream)
  fed.catch(() => undefined) // the stream reports the same error
  try {
    for await (const piece of stream) yield piece as Buffer
  } catch (error) {
    const code = errorCodeOf(error)
    if (code === 'ZSTD_error_frameParameter_windowTooLarge')
      throw moduleInvalid(`layer needs a zstd window of more than ${2 ** (MAX_ZSTD_WINDOW_LOG - 20)} MiB`)
    if (code?.startsWith('Z_') === true || code?.startsWith('ZSTD_') === true)
      throw moduleInvalid(`layer is not a ${kind} stream, or is truncated (${code})`)
    throw error
  } finally {
    stream.destroy()
    await fed.catch(() => undefined) // the source is closed before the caller continues
  }
}

const shown = (mediaType: string) => mediaType.slice(0, MAX_TYPE_CHARS)
