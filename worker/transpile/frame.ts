/**
 * The output of a process that transpiles or checks: the length of a header, the header as JSON, then the bytes of the
 * files. Its reader treats it as untrusted, because the process has handled input of a tenant.
 */
import { ServiceError } from '#core/errors/index.ts'

export type TranspiledFile = [name: string, bytes: Uint8Array]

const HEADER_LENGTH_BYTES = 4
const MAX_FILES = 1_000
const MAX_ERROR_CHARACTERS = 1_000
/** The file names of the transpiler; no other name becomes a path. */
const NAME = /^component(\.core\d{0,4}\.wasm|\.js)$/

/** Files, or an error message. */
export function encodeFrame(content: readonly TranspiledFile[] | string): Buffer {
  const header =
    typeof content === 'string'
      ? { error: content.slice(0, MAX_ERROR_CHARACTERS) }
      : { files: content.map(([name, bytes]) => [name, bytes.length]) }
  const text = Buffer.from(JSON.stringify(header))
  const length = Buffer.alloc(HEADER_LENGTH_BYTES)
  length.writeUInt32LE(text.length)
  return Buffer.concat([length, text, ...(typeof content === 'string' ? [] : content.map(([, bytes]) => bytes))])
}

/** Throws `malformed` with the transpiler's message, or for an invalid frame. */
export function decodeFrame(frame: Buffer): TranspiledFile[] {
  const headerBytes = frame.length < HEADER_LENGTH_BYTES ? Infinity : frame.readUInt32LE(0)
  let offset = HEADER_LENGTH_BYTES + headerBytes
  if (offset > frame.length) throw broken()
  const header = parseHeader(frame.subarray(HEADER_LENGTH_BYTES, offset))
  if (typeof header === 'string') throw new ServiceError('malformed', `the component cannot be transpiled: ${header}`)
  const files = header.map(([name, size]): TranspiledFile => {
    const bytes = frame.subarray(offset, offset + size)
    offset += size
    return [name, bytes]
  })
  if (offset !== frame.length) throw broken()
  return files
}

function parseHeader(bytes: Buffer): [name: string, size: number][] | string {
  let header: unknown
  try {
    header = JSON.parse(bytes.toString())
  } catch {
    throw broken()
  }
  const { error, files } = header as { error?: unknown; files?: unknown }
  if (typeof error === 'string') return error.slice(0, MAX_ERROR_CHARACTERS)
  if (!Array.isArray(files) || files.length > MAX_FILES || !files.every(isFile)) throw broken()
  return files
}

function isFile(file: unknown): file is [string, number] {
  if (!Array.isArray(file)) return false
  const [name, size] = file as unknown[]
  return typeof name === 'string' && NAME.test(name) && Number.isSafeInteger(size) && (size as number) >= 0
}

function broken(): ServiceError {
  return new ServiceError('malformed', 'the component cannot be transpiled: the transpiler exited without output')
}

export async function readInput(input: AsyncIterable<unknown>): Promise<Buffer> {
  const parts: Buffer[] = []
  for await (const part of input) parts.push(part as Buffer)
  return Buffer.concat(parts)
}
