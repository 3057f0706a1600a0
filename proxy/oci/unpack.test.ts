/** The bytes of a layer that are accepted as a module, and the errors for others (task manager section 6, rule 4). */
import { constants, gzipSync, zstdCompressSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { CONFIG_TYPES, TAR_GZIP_LAYER_TYPES, TAR_LAYER_TYPES, TAR_ZSTD_LAYER_TYPES, layerForm } from './media-types.ts'
import type { LayerForm } from './media-types.ts'
import { unpackModule } from './unpack.ts'

const WASM = Buffer.from('\0asm\x01\0\0\0', 'latin1')
const LIMITS = { maxModuleBytes: 1024 }
const DIGEST = `sha256:${'1'.repeat(64)}`

async function unpack(mediaType: string, bytes: Buffer, form: LayerForm = layerForm(mediaType), pieceBytes = 3) {
  let isClosed = false
  async function* pieces() {
    try {
      for (let at = 0; at < bytes.length; at += pieceBytes) yield bytes.subarray(at, at + pieceBytes)
    } finally {
      isClosed = true
    }
  }
  const layer = {
    descriptor: { mediaType, digest: DIGEST, sizeBytes: bytes.length },
    form,
    configType: CONFIG_TYPES[4],
  }
  const unpacked = (async () => Buffer.concat(await Array.fromAsync(unpackModule(layer, pieces(), LIMITS))))()
  return await unpacked.finally(() => expect(isClosed, 'the source is closed').toBe(true))
}

function tarOf(path: string, content: Buffer): Buffer {
  const header = Buffer.alloc(512)
  header.write(path)
  header.write(content.length.toString(8).padStart(11, '0'), 124)
  header.write(' '.repeat(8), 148)
  header.write('0', 156)
  const sum = header.reduce((total, byte) => total + byte, 0)
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return Buffer.concat([header, content, Buffer.alloc(512 - (content.length % 512)), Buffer.alloc(1024)])
}

const TAR = tarOf('add.wasm', WASM)

describe('unpackModule', () => {
  it.each([...TAR_LAYER_TYPES, ...TAR_GZIP_LAYER_TYPES, ...TAR_ZSTD_LAYER_TYPES, 'application/octet-stream'])(
    'accepts a WebAssembly binary of type %s',
    async (type) => expect(await unpack(type, WASM)).toEqual(WASM),
  )

  it.each([
    [TAR_LAYER_TYPES[0], TAR],
    [TAR_GZIP_LAYER_TYPES[0], gzipSync(TAR)],
    [TAR_ZSTD_LAYER_TYPES[0], zstdCompressSync(TAR)],
    [
      TAR_ZSTD_LAYER_TYPES[1],
      Buffer.concat([zstdCompressSync(TAR.subarray(0, 700)), zstdCompressSync(TAR.subarray(700))]),
    ],
  ])('accepts the .wasm file of %s', async (type, bytes) => expect(await unpack(type, bytes)).toEqual(WASM))

  it.each([
    ['text/plain', Buffer.from('hello'), /layer text\/plain \(config .*\) contains no .*begins with 68 65 6c 6c;/],
    ['text/plain', Buffer.alloc(0), /it is empty/],
    ['application/x', gzipSync(TAR), /begins with 1f 8b 08 00 \(gzip\); accepted are .*tar\+zstd/],
    ['application/x', zstdCompressSync(TAR), /\(zstd\)/],
    ['application/x', Buffer.from('PK\x03\x04'), /\(zip\)/],
    [TAR_ZSTD_LAYER_TYPES[0], gzipSync(TAR), /not a zstd stream/],
    [TAR_ZSTD_LAYER_TYPES[0], zstdCompressSync(TAR).subarray(0, -3), /is truncated/],
    [TAR_GZIP_LAYER_TYPES[0], zstdCompressSync(TAR), /not a gzip stream/],
    [TAR_LAYER_TYPES[0], tarOf('add.wasm', Buffer.from('text')), /the \.wasm file of layer .* begins with 74/],
    [TAR_LAYER_TYPES[0], tarOf('readme.md', WASM), /no \.wasm file; it has readme\.md/],
  ])('refuses %s and reports its content', async (type, bytes, message) => {
    await expect(unpack(type, bytes)).rejects.toMatchObject({
      kind: 'malformed',
      message: expect.stringMatching(message),
    })
  })

  it('refuses a window of zstd beyond the memory that every decoder must support', async () => {
    const params = { [constants.ZSTD_c_windowLog]: 24, [constants.ZSTD_c_contentSizeFlag]: 0 }
    const bytes = zstdCompressSync(Buffer.alloc(32 * 1024 * 1024), { params })
    await expect(unpack(TAR_ZSTD_LAYER_TYPES[0], bytes)).rejects.toThrow(/window of more than 8 MiB/)
  })

  it('refuses an archive that unpacks to far more than the size limit of a module', async () => {
    const bomb = zstdCompressSync(Buffer.concat([tarOf('big.txt', Buffer.alloc(128 * 1024 * 1024)), TAR]))
    expect(bomb.length).toBeLessThan(64 * 1024)
    await expect(unpack(TAR_ZSTD_LAYER_TYPES[0], bomb, 'tar+zstd', 4096)).rejects.toThrow(/unpacks to more than/)
  })
})
