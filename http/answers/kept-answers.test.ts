import { expect, test } from 'vitest'
import { brotliDecompressSync } from 'node:zlib'
import { KeptAnswer, renderOnce } from './kept-answers.ts'

test('an answer is rendered once for all that ask, and again only after a failure', async () => {
  let renderings = 0
  const read = renderOnce(() => {
    renderings += 1
    if (renderings === 1) throw new Error('broken')
    return renderings
  })
  const failed = [read(), read()]
  for (const one of failed) await expect(one).rejects.toThrow('broken')
  expect(await Promise.all(Array.from({ length: 20 }, () => read()))).toEqual(Array.from({ length: 20 }, () => 2))
  expect(await read()).toBe(2)
})

test('each form of an answer has one tag and the same bytes for every caller', async () => {
  const content = 'x'.repeat(5000)
  const answer = new KeptAnswer('text/plain', content)
  const [plain, br, again] = [await answer.in(undefined), await answer.in('br'), await answer.in('br')]
  expect(again.bytes).toBe(br.bytes)
  expect(brotliDecompressSync(br.bytes).toString()).toBe(content)
  expect(new Set([plain.etag, br.etag, (await answer.in('gzip')).etag]).size).toBe(3)
  expect((await new KeptAnswer('text/plain', content).in('br')).etag).toBe(br.etag)
  expect((await new KeptAnswer('text/plain', `${content}y`).in('br')).etag).not.toBe(br.etag)
})

test('given compressed bytes are read when they are first asked for, and once', async () => {
  let reads = 0
  const given = { br: () => Promise.resolve(Buffer.from(`compressed ${(reads += 1)}`)) }
  const answer = new KeptAnswer('application/wasm', 'plain', { given })
  await answer.in(undefined)
  expect(reads).toBe(0)
  expect((await answer.in('br')).bytes.toString()).toBe('compressed 1')
  expect((await answer.in('br')).bytes.toString()).toBe('compressed 1')
})

test.each([
  ['small answers', 'text/plain', 1023],
  ['images', 'image/png', 5000],
])('%s are sent as they are', async (_what, type, length) => {
  const answer = new KeptAnswer(type, 'x'.repeat(length))
  expect(answer.isNegotiated).toBe(false)
  expect(await answer.in('br')).toMatchObject({ encoding: undefined, etag: (await answer.in(undefined)).etag })
})
