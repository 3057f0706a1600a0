// RFC 7578, and bodies that are rejected
import { expect, test } from 'vitest'
import { readFilePart } from './multipart.ts'

const TYPE = 'multipart/form-data; boundary=b'

/** Splits the bytes into pieces of `size`. */
async function* inPieces(bytes: Buffer, size: number): AsyncGenerator<Buffer, void, void> {
  for (let at = 0; at < bytes.length; at += size) yield await Promise.resolve(bytes.subarray(at, at + size))
}

async function read(body: string | Buffer, { type = TYPE, size = 7 } = {}) {
  const part = await readFilePart(inPieces(Buffer.from(body as string), size), type)
  if (part === undefined) return undefined
  const pieces: Buffer[] = []
  for await (const piece of part.content) pieces.push(piece)
  return { name: part.name, content: Buffer.concat(pieces).toString('latin1') }
}

const part = (head: string, content: string) => `--b\r\nContent-Disposition: form-data; ${head}\r\n\r\n${content}\r\n`
const FILE = part('name="file"; filename="a.wasm"', 'content')

test('the body of a standard client is read, however it is split', async () => {
  const form = new FormData()
  form.append('note', 'a field')
  form.append('file', new Blob([Buffer.from('\0asm\r\n--\r\n')]), 'a; "b".wasm')
  const body = new Response(form)
  const bytes = Buffer.from(await body.clone().arrayBuffer())
  for (const size of [1, 2, 3, 10, 1000]) {
    const type = body.headers.get('content-type') ?? ''
    expect(await read(bytes, { type, size })).toEqual({ name: 'file', content: '\0asm\r\n--\r\n' })
  }
})

test.each([
  ['a preamble and an epilogue', `hello\r\n${FILE}--b--\r\ngoodbye`],
  ['fields before the file', `${part('name="a"', 'x')}${part('name=c', '')}${FILE}--b--`],
  ['parts behind the file', `${FILE}${part('name="a"; filename="b"', 'x')}--b--`],
  [
    'other fields in the head',
    `--b\r\nX: y\r\ncontent-disposition: form-data; filename=a; NAME=file\r\n\r\ncontent\r\n--b--`,
  ],
  [
    'a file without a name of its own',
    '--b\r\nContent-Type: application/octet-stream\r\nContent-Disposition: form-data; name="file"\r\n\r\ncontent\r\n--b--',
  ],
])('%s', async (_name, body) => {
  for (const size of [1, 5, 1000]) expect(await read(body, { size })).toEqual({ name: 'file', content: 'content' })
})

test('an empty file is a file, and a quoted boundary is a boundary', async () => {
  const type = 'multipart/form-data; charset=utf-8; boundary="b"'
  expect(await read(`${part('name="f"; filename=""', '')}--b--`, { type })).toEqual({ name: 'f', content: '' })
})

test('a body without a file gives undefined', async () => {
  expect(await read(`${part('name="file"', 'x')}--b--\r\n`)).toBeUndefined()
  expect(await read('--b--\r\n')).toBeUndefined()
})

test.each([
  ['no boundary in the type', FILE, 'multipart/form-data'],
  ['a boundary that is too long', FILE, `multipart/form-data; boundary=${'b'.repeat(71)}`],
  ['another boundary', FILE, 'multipart/form-data; boundary=c'],
  ['no end', FILE, TYPE],
  ['an end within the file', '--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\ncont', TYPE],
  ['nothing', '', TYPE],
  ['a boundary that goes on', `--bx${FILE}--b--`, TYPE],
])('%s is malformed', async (_name, body, type) => {
  await expect(read(body, { type })).rejects.toMatchObject({ kind: 'malformed' })
})

test.each([
  ['a preamble', 'x'.repeat(20_000)],
  ['a head', `--b\r\n${'x'.repeat(20_000)}`],
  ['fields', part('name="a"', 'x').repeat(500)],
  ['an epilogue', `${FILE}--b--${'x'.repeat(20_000)}`],
])('%s above the limit for bytes around the file is too large', async (_name, body) => {
  await expect(read(body, { size: 1000 })).rejects.toMatchObject({ kind: 'too_large' })
})
