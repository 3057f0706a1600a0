/**
 * Reads a tar stream (POSIX.1-2017 pax, "ustar Interchange Format", with GNU long names) and yields its entries, one at a
 * time. It writes nothing to disk under a name of the archive.
 */
import { moduleInvalid } from './refusal.ts'

export type TarEntry = {
  /** Path in the archive, validated: relative, without `..`. */
  path: string
  /** `file`, or another type. */
  type: 'file' | 'directory' | 'link' | 'other'
  sizeBytes: number
  /** The content; must be read completely or not at all, before the next entry is requested. */
  content: AsyncIterable<Buffer>
}

export type TarLimits = { maxEntries: number; maxTotalBytes: number }

const BLOCK_BYTES = 512
/** A pax header or a long name: path and size take some hundred bytes, 64 KiB is a generous limit. */
const MAX_EXTENSION_BYTES = 64 * 1024

/**
 * Iterates over the archive. Throws `malformed` for a header with a wrong checksum, a path outside the archive, too many
 * entries or bytes, and a truncated archive.
 */
export async function* readTar(source: AsyncIterable<Buffer>, limits: TarLimits): AsyncGenerator<TarEntry> {
  const stream = createByteReader(source, limits.maxTotalBytes)
  try {
    yield* readEntries(stream, limits.maxEntries)
  } finally {
    await stream.close()
  }
}

async function* readEntries(stream: ByteReader, maxEntries: number): AsyncGenerator<TarEntry> {
  let extension: { path?: string; sizeBytes?: number } = {}
  for (let count = 0; ; count++) {
    const header = await stream.exactly(BLOCK_BYTES, 'a header')
    // Two blocks of zeros end an archive; many writers write one, and some none.
    if (header === undefined || header.every((byte) => byte === 0)) return
    if (count >= maxEntries) throw moduleInvalid(`archive has more than ${maxEntries} entries`)
    checkChecksum(header)
    const flag = String.fromCharCode(header[156] ?? 0)
    const sizeBytes = extension.sizeBytes ?? readNumber(header, 124, 12)
    if (flag === 'x' || flag === 'g' || flag === 'L' || flag === 'K') {
      const data = await readExtension(stream, readNumber(header, 124, 12))
      if (flag === 'x') extension = { ...extension, ...readPax(data) }
      if (flag === 'L') extension = { ...extension, path: textOf(data) }
      continue
    }
    const path = checkPath(extension.path ?? readName(header))
    extension = {}
    const type = typeOf(flag)
    // Links and directories have no content, independent of their size field.
    const contentBytes = type === 'file' || type === 'other' ? sizeBytes : 0
    const content = stream.upTo(contentBytes)
    yield { path, type, sizeBytes: contentBytes, content }
    for await (const _ of content); // skips unread content
    await stream.exactly(paddingOf(contentBytes), 'padding')
  }
}

function typeOf(flag: string): TarEntry['type'] {
  if (flag === '0' || flag === '\0' || flag === '7') return 'file'
  if (flag === '5') return 'directory'
  return flag === '1' || flag === '2' ? 'link' : 'other'
}

function readName(header: Buffer): string {
  const name = textOf(header.subarray(0, 100))
  const isUstar = header.toString('latin1', 257, 262) === 'ustar'
  const prefix = isUstar && header[262] === 0 ? textOf(header.subarray(345, 500)) : ''
  return prefix === '' ? name : `${prefix}/${name}`
}

function checkPath(path: string): string {
  if (path === '' || path.includes('\0')) throw moduleInvalid('archive has an entry without a usable path')
  if (/^(?:[/\\]|[A-Za-z]:)/.test(path)) throw moduleInvalid(`archive has an absolute path: ${shown(path)}`)
  if (path.split(/[/\\]/).includes('..')) throw moduleInvalid(`archive has a path that leaves it: ${shown(path)}`)
  return path
}

/** An octal number, or GNU's binary form if the first bit is set. */
function readNumber(header: Buffer, offset: number, length: number): number {
  const field = header.subarray(offset, offset + length)
  if (((field[0] ?? 0) & 0x80) !== 0) {
    const value = field.subarray(1).reduce((sum, byte) => sum * 256 + byte, 0)
    if (field[0] !== 0x80 || !Number.isSafeInteger(value))
      throw moduleInvalid('archive has an entry of impossible size')
    return value
  }
  const text = textOf(field).trim()
  if (!/^[0-7]*$/.test(text)) throw moduleInvalid('layer is not a tar archive: a header has an invalid number')
  return text === '' ? 0 : Number.parseInt(text, 8)
}

function checkChecksum(header: Buffer): void {
  const stated = readNumber(header, 148, 8)
  let sum = 8 * 0x20 // the checksum field itself counts as spaces
  for (const [index, byte] of header.entries()) if (index < 148 || index >= 156) sum += byte
  if (sum !== stated) throw moduleInvalid('layer is not a tar archive: a header has a wrong checksum')
}

async function readExtension(stream: ByteReader, sizeBytes: number): Promise<Buffer> {
  if (sizeBytes > MAX_EXTENSION_BYTES)
    throw moduleInvalid(`archive has an extended header above ${MAX_EXTENSION_BYTES} bytes`)
  const data = (await stream.exactly(sizeBytes, 'an extended header')) ?? Buffer.alloc(0)
  await stream.exactly(paddingOf(sizeBytes), 'padding')
  return data
}

/** Records of the form `<length> <key>=<value>\n`; only path and size are used. */
function readPax(data: Buffer): { path?: string; sizeBytes?: number } {
  const found: { path?: string; sizeBytes?: number } = {}
  for (let position = 0; position < data.length;) {
    const space = data.indexOf(0x20, position)
    const length = space < 0 ? NaN : Number(data.toString('latin1', position, space))
    if (!Number.isInteger(length) || length <= space - position || position + length > data.length) {
      throw moduleInvalid('archive has an invalid extended header')
    }
    const [key, ...rest] = data.toString('utf8', space + 1, position + length - 1).split('=')
    if (key === 'path') found.path = rest.join('=')
    if (key === 'size') {
      const sizeBytes = Number(rest.join('='))
      if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0)
        throw moduleInvalid('archive has an entry of impossible size')
      found.sizeBytes = sizeBytes
    }
    position += length
  }
  return found
}

function textOf(field: Buffer): string {
  const end = field.indexOf(0)
  return field.toString('utf8', 0, end < 0 ? field.length : end)
}

function paddingOf(sizeBytes: number): number {
  return (BLOCK_BYTES - (sizeBytes % BLOCK_BYTES)) % BLOCK_BYTES
}

function shown(path: string): string {
  return JSON.stringify(path.slice(0, 200))
}

type ByteReader = {
  /** Reads exactly this many bytes; undefined if the archive ends here and bytes were requested. */
  exactly(sizeBytes: number, what: string): Promise<Buffer | undefined>
  upTo(sizeBytes: number): AsyncGenerator<Buffer>
  /** Closes the source in any state. */
  close(): Promise<void>
}

function createByteReader(source: AsyncIterable<Buffer>, maxTotalBytes: number): ByteReader {
  const iterator = source[Symbol.asyncIterator]()
  let rest: Buffer = Buffer.alloc(0)
  let totalBytes = 0

  async function pull(): Promise<boolean> {
    const next = await iterator.next()
    if (next.done === true) return false
    totalBytes += next.value.length
    if (totalBytes > maxTotalBytes) throw moduleInvalid(`archive unpacks to more than ${maxTotalBytes} bytes`)
    rest = rest.length === 0 ? next.value : Buffer.concat([rest, next.value])
    return true
  }

  return {
    async exactly(sizeBytes, what) {
      while (rest.length < sizeBytes) {
        if (await pull()) continue
        if (rest.length === 0) return undefined
        throw moduleInvalid(`archive ends in the middle of ${what}`)
      }
      const taken = rest.subarray(0, sizeBytes)
      rest = rest.subarray(sizeBytes)
      return taken
    },
    async *upTo(sizeBytes) {
      for (let left = sizeBytes; left > 0;) {
        if (rest.length === 0 && !(await pull())) throw moduleInvalid('archive ends in the middle of a file')
        const taken = rest.subarray(0, left)
        rest = rest.subarray(taken.length)
        left -= taken.length
        if (taken.length > 0) yield taken
      }
    },
    async close() {
      await iterator.return?.()
    },
  }
}
