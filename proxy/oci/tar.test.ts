import { describe, expect, it } from 'vitest'
import { readTar } from './tar.ts'

const LIMITS = { maxEntries: 100, maxTotalBytes: 1024 * 1024 }

type Member = { name: string; data?: string; type?: string; size?: number }

function header({ name, data = '', type = '0', size = Buffer.byteLength(data) }: Member): Buffer {
  const block = Buffer.alloc(512)
  block.write(name, 0, 100, 'utf8')
  block.write('0000644\0', 100)
  block.write(`${size.toString(8).padStart(11, '0')}\0`, 124)
  block.write('        ', 148)
  block.write(type, 156)
  block.write('ustar\x0000', 257)
  const sum = block.reduce((total, byte) => total + byte, 0)
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return block
}

function archive(...members: Member[]): Buffer {
  const parts = members.flatMap((member) => {
    const data = Buffer.from(member.data ?? '')
    return [header(member), data, Buffer.alloc((512 - (data.length % 512)) % 512)]
  })
  return Buffer.concat([...parts, Buffer.alloc(1024)])
}

async function* inPieces(bytes: Buffer, pieceBytes: number): AsyncGenerator<Buffer> {
  for (let position = 0; position < bytes.length; position += pieceBytes)
    yield bytes.subarray(position, position + pieceBytes)
}

async function read(bytes: Buffer, pieceBytes = 64 * 1024, limits = LIMITS) {
  const entries: { path: string; type: string; text: string }[] = []
  for await (const { path, type, content } of readTar(inPieces(bytes, pieceBytes), limits)) {
    let text = ''
    for await (const piece of content) text += piece.toString()
    entries.push({ path, type, text })
  }
  return entries
}

const pax = (key: string, value: string) => {
  const rest = ` ${key}=${value}\n`
  let length = rest.length + 1
  while (`${length}${rest}`.length !== length) length += 1
  return `${length}${rest}`
}

describe('readTar', () => {
  it.each([1, 7, 511, 512, 513, 65_536])(
    'reads files, folders and links for any chunk size (%i bytes)',
    async (size) => {
      const bytes = archive(
        { name: 'd/', type: '5' },
        { name: 'd/a.wasm', data: 'x'.repeat(600) },
        { name: 'l', type: '2' },
      )
      expect(await read(bytes, size)).toEqual([
        { path: 'd/', type: 'directory', text: '' },
        { path: 'd/a.wasm', type: 'file', text: 'x'.repeat(600) },
        { path: 'l', type: 'link', text: '' },
      ])
    },
  )

  it('continues with the next entry if the content was not read', async () => {
    const paths: string[] = []
    for await (const entry of readTar(
      inPieces(archive({ name: 'a', data: 'aaa' }, { name: 'b', data: 'b' }), 100),
      LIMITS,
    )) {
      paths.push(entry.path)
    }
    expect(paths).toEqual(['a', 'b'])
  })

  it('takes long names from pax and from GNU headers', async () => {
    const long = `${'n'.repeat(150)}.wasm`
    expect(
      (await read(archive({ name: 'p', type: 'x', data: pax('path', long) }, { name: 'cut', data: '1' })))[0]?.path,
    ).toBe(long)
    expect(
      (await read(archive({ name: '././@LongLink', type: 'L', data: `${long}\0` }, { name: 'cut', data: '1' })))[0]
        ?.path,
    ).toBe(long)
  })

  it.each([
    ['an absolute path', archive({ name: '/etc/passwd', data: 'x' }), /absolute/],
    ['a path of another system', archive({ name: 'C:\\x.wasm', data: 'x' }), /absolute/],
    ['a path that leaves the archive', archive({ name: 'a/../../x.wasm', data: 'x' }), /leaves/],
    [
      'a pax path that leaves the archive',
      archive({ name: 'p', type: 'x', data: pax('path', '../x') }, { name: 'x' }),
      /leaves/,
    ],
    ['an empty path', archive({ name: '', data: 'x' }), /path/],
    [
      'a wrong checksum',
      Buffer.concat([Buffer.from('!'), archive({ name: 'a' }).subarray(1)]),
      /not a tar archive.*checksum/,
    ],
    ['bytes that are not an archive', Buffer.from('hello'.padEnd(1024, '!')), /not a tar archive/],
    ['an end inside a file', archive({ name: 'a', data: 'x'.repeat(600) }).subarray(0, 900), /middle/],
    ['an end inside a header', archive({ name: 'a' }).subarray(0, 100), /middle/],
    ['a broken pax record', archive({ name: 'p', type: 'x', data: '999 path=x\n' }, { name: 'x' }), /extended header/],
    [
      'a pax record of no length',
      archive({ name: 'p', type: 'x', data: '0 path=x\n' }, { name: 'x' }),
      /extended header/,
    ],
    ['a huge extension', archive({ name: 'p', type: 'x', data: 'x'.repeat(70_000) }), /extended header/],
    ['more bytes than allowed', archive({ name: 'a', data: 'x'.repeat(2_000_000) }), /unpacks to more/],
    ['more entries than allowed', archive(...Array.from({ length: 101 }, (_, n) => ({ name: `f${n}` }))), /entries/],
  ])('refuses %s', async (_what, bytes, message) => {
    await expect(read(bytes)).rejects.toThrow(message)
    await expect(read(bytes)).rejects.toMatchObject({ kind: 'malformed' })
  })

  it('ends on an archive without a closing block', async () => {
    expect(await read(archive({ name: 'a', data: 'x' }).subarray(0, 1024))).toHaveLength(1)
  })
})
