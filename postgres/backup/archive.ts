/**
 * The file of a backup: a tar archive (ustar, POSIX.1-1988) that `tar` lists and unpacks. Its members are, in this order:
 *
 * - `manifest.json`: version, schema and time of the backup (`Manifest`)
 * - `tables/<name>/<number>.copy.zst`: rows of a table in the text format of COPY, in parts that are compressed separately
 * - `checksums.json`: name and SHA-256 of every member before it (`Checksums`)
 *
 * A reader commits nothing before it has verified `checksums.json`, so that a truncated or changed file is refused completely.
 */
import { createHash } from 'node:crypto'
import { open } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { ServiceError } from '#core/errors/index.ts'

const BLOCK_BYTES = 512
/** Zero bytes that end an archive. */
const END_BYTES = 2 * BLOCK_BYTES
/** Members are held in memory one at a time; parts of a table are much smaller. */
export const MAX_MEMBER_BYTES = 64 * 1024 * 1024
const CHECKSUMS = 'checksums.json'
const MAGIC = 'ustar\u000000'
const NAME_BYTES = 100
const SIZE_AT = 124
const CHECKSUM_AT = 148
const CHECKSUM_BYTES = 8
const TYPE_AT = 156
const MAGIC_AT = 257
const REGULAR_FILE = '0'

export type Member = { name: string; data: Buffer }

type Checksums = { members: { name: string; sha256: string }[] }

const digestOf = (data: Uint8Array) => createHash('sha256').update(data).digest('hex')

export class ArchiveWriter {
  readonly #file: FileHandle
  readonly #members: { name: string; sha256: string }[] = []
  #bytes = 0

  constructor(file: FileHandle) {
    this.#file = file
  }

  /** The size of the file. */
  get bytes(): number {
    return this.#bytes
  }

  async add(name: string, data: Uint8Array): Promise<void> {
    this.#members.push({ name, sha256: digestOf(data) })
    await this.#write(headerOf(name, data.length), data, padding(data.length))
  }

  /** Writes the checksums and the end of the archive, and syncs the file. */
  async finish(): Promise<void> {
    const checksums: Checksums = { members: this.#members }
    const data = Buffer.from(JSON.stringify(checksums))
    await this.#write(headerOf(CHECKSUMS, data.length), data, padding(data.length), Buffer.alloc(END_BYTES))
    await this.#file.sync()
  }

  async #write(...parts: Uint8Array[]): Promise<void> {
    for (const part of parts) {
      await this.#file.writeFile(part)
      this.#bytes += part.length
    }
  }
}

const padding = (length: number) => Buffer.alloc((BLOCK_BYTES - (length % BLOCK_BYTES)) % BLOCK_BYTES)

function headerOf(name: string, length: number): Buffer {
  if (Buffer.byteLength(name) >= NAME_BYTES) throw new Error(`too long for a member of an archive: ${name}`)
  const header = Buffer.alloc(BLOCK_BYTES)
  header.write(name, 0)
  // Mode, user and group; modification time 0: the manifest says when.
  header.write('0000600\u00000000000\u00000000000\u0000', NAME_BYTES)
  header.write(`${length.toString(8).padStart(11, '0')}\u0000`, SIZE_AT)
  header.write('00000000000\u0000', SIZE_AT + 12)
  header.write(REGULAR_FILE, TYPE_AT)
  header.write(MAGIC, MAGIC_AT)
  header.write(`${sumOf(header).toString(8).padStart(6, '0')}\u0000 `, CHECKSUM_AT)
  return header
}

/** The checksum of a header, computed with spaces in its checksum field. */
function sumOf(header: Buffer): number {
  let sum = 0
  for (const [at, byte] of header.entries()) sum += at >= CHECKSUM_AT && at < CHECKSUM_AT + CHECKSUM_BYTES ? 0x20 : byte
  return sum
}

/**
 * The members of the archive at `path`, in their order, without `checksums.json`. When it ends, all members were
 * unchanged since they were written; throws `malformed` for the first changed member.
 */
export async function* readArchive(path: string): AsyncGenerator<Member> {
  const file = await open(path, 'r').catch((error: NodeJS.ErrnoException) => {
    throw new ServiceError('invalid_state', `${path} cannot be read: ${error.message}`, { cause: error })
  })
  try {
    const seen: { name: string; sha256: string }[] = []
    for (;;) {
      const { name, length } = readHeader(path, await readExactly(file, path, BLOCK_BYTES))
      const data = await readExactly(file, path, length)
      await readZeros(file, path, padding(length).length)
      if (name === CHECKSUMS) {
        requireSame(path, data, seen)
        await readZeros(file, path, END_BYTES)
        if ((await file.read(Buffer.alloc(1))).bytesRead > 0) throw damaged(path)
        return
      }
      seen.push({ name, sha256: digestOf(data) })
      yield { name, data }
    }
  } finally {
    await file.close()
  }
}

function readHeader(path: string, header: Buffer): { name: string; length: number } {
  if (header.toString('latin1', MAGIC_AT, MAGIC_AT + MAGIC.length) !== MAGIC)
    throw new ServiceError('malformed', `${path} is not a backup of Skein, or it is damaged`)
  const text = (from: number, bytes: number) => header.toString('utf8', from, from + bytes).replace(/\0.*$/s, '')
  const length = Number.parseInt(text(SIZE_AT, 12), 8)
  const isSound = Number.parseInt(text(CHECKSUM_AT, CHECKSUM_BYTES), 8) === sumOf(header)
  if (!isSound || !(length >= 0 && length <= MAX_MEMBER_BYTES)) throw damaged(path)
  return { name: text(0, NAME_BYTES), length }
}

async function readExactly(file: FileHandle, path: string, length: number): Promise<Buffer> {
  const data = Buffer.allocUnsafe(length)
  let read = 0
  while (read < length) {
    const { bytesRead } = await file.read(data, read, length - read)
    if (bytesRead === 0)
      throw new ServiceError('malformed', `${path} is truncated: it was not written or copied completely`)
    read += bytesRead
  }
  return data
}

async function readZeros(file: FileHandle, path: string, length: number): Promise<void> {
  if ((await readExactly(file, path, length)).some((byte) => byte !== 0)) throw damaged(path)
}

function requireSame(path: string, data: Buffer, seen: Checksums['members']): void {
  let written: Checksums
  try {
    written = JSON.parse(data.toString()) as Checksums
  } catch {
    throw damaged(path)
  }
  if (JSON.stringify(written.members) !== JSON.stringify(seen)) throw damaged(path)
}

export function damaged(path: string): ServiceError {
  return new ServiceError('malformed', `${path} is damaged: its checksums differ. Use another copy of the backup`)
}
