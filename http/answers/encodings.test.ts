import { gunzipSync, brotliDecompressSync } from 'node:zlib'
import { expect, test } from 'vitest'
import { compressWhole, encodingFor } from './encodings.ts'

test.each([
  [undefined, undefined],
  ['', undefined],
  ['identity', undefined],
  ['deflate, zstd', undefined],
  ['gzip', 'gzip'],
  ['x-gzip', 'gzip'],
  ['GZIP', 'gzip'],
  ['gzip, deflate, br', 'br'],
  ['br;q=0.5, gzip;q=0.8', 'gzip'],
  ['br;q=0, gzip', 'gzip'],
  ['br ; q=0.0 , gzip;q=0.001', 'gzip'],
  ['*', 'br'],
  ['*;q=0, gzip', 'gzip'],
  ['br;q=0, *', 'gzip'],
  ['gzip;q=0.5, identity', undefined],
  ['gzip;q=2', undefined],
  ['gzip;level=1', undefined],
  [`${'zstd,'.repeat(20)}gzip`, undefined],
])('Accept-Encoding %j is answered with %s', (header, encoding) => {
  expect(encodingFor(header)).toBe(encoding)
})

test('compressed bytes are those that were given', async () => {
  const bytes = Buffer.from('a pump and a valve, '.repeat(200))
  const [br, gzip] = [await compressWhole('br', bytes, 4), await compressWhole('gzip', bytes, 4)]
  expect(brotliDecompressSync(br)).toEqual(bytes)
  expect(gunzipSync(gzip)).toEqual(bytes)
  expect(Math.max(br.length, gzip.length)).toBeLessThan(bytes.length / 4)
})
