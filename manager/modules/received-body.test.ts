import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { MAX_MODULE_BYTES, createBodyReceiver } from './received-body.ts'

const folder = mkdtempSync(join(tmpdir(), 'skein-bodies-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

async function* pieces(count: number, bytes: number): AsyncGenerator<Buffer> {
  for (let index = 0; index < count; index++) {
    await Promise.resolve()
    yield Buffer.alloc(bytes, index)
  }
}

/** Sends a little and then stalls forever. */
async function* trickling(): AsyncGenerator<Buffer> {
  yield Buffer.from('ab')
  await new Promise(() => undefined)
}

test('a received body is read unchanged, in memory or from a file, and its file is removed', async () => {
  const bodies = createBodyReceiver({ folder })
  const sent = Buffer.concat(await Array.fromAsync(pieces(40, 70_000)))
  const read = await bodies.receive('a', pieces(40, 70_000), async (body) => {
    expect(body.sizeBytes).toBe(sent.length)
    expect(Buffer.concat(await Array.fromAsync(body.pieces())).equals(sent)).toBe(true)
    expect(readdirSync(folder)).toEqual([])
    return await body.read()
  })
  expect(read.equals(sent)).toBe(true)
})

test('a small body has no file, and is as good as one in a file', async () => {
  const folder = join(tmpdir(), `skein-no-bodies-${process.pid}`)
  const bodies = createBodyReceiver({ folder })
  const sent = Buffer.concat(await Array.fromAsync(pieces(5, 300)))
  const read = await bodies.receive('a', pieces(5, 300), async (body) => {
    expect(Buffer.concat(await Array.fromAsync(body.pieces())).equals(sent)).toBe(true)
    // Two reads are two buffers: each can be given away.
    expect((await body.read()).buffer).not.toBe((await body.read()).buffer)
    return await body.read()
  })
  expect(read.equals(sent)).toBe(true)
  expect(existsSync(folder)).toBe(false)
})

test('a body that arrives too slowly is refused for every sender', async () => {
  const bodies = createBodyReceiver({ folder, graceMs: 50 })
  const work = () => Promise.reject(new Error('never begun'))
  await expect(bodies.receive('a', trickling(), work)).rejects.toMatchObject({
    kind: 'timeout',
    message: 'the body must arrive at 1024 bytes per second or faster',
  })
})

test('a body that is too large is refused at the limit', async () => {
  const bodies = createBodyReceiver({ folder })
  const work = () => Promise.reject(new Error('never begun'))
  const tooMany = pieces(MAX_MODULE_BYTES / (8 * 1024 * 1024) + 1, 8 * 1024 * 1024)
  await expect(bodies.receive('a', tooMany, work)).rejects.toMatchObject({ kind: 'too_large' })
})

test('a slow body does not occupy a slot for complete ones', async () => {
  const bodies = createBodyReceiver({ folder, graceMs: 60_000 })
  const begun = Array.from({ length: 7 }, () => bodies.receive('a', trickling(), () => Promise.resolve()))
  for (const one of begun) one.catch(() => undefined)
  expect(await bodies.receive('a', pieces(1, 10), (body) => Promise.resolve(body.sizeBytes))).toBe(10)
  expect(await bodies.receive('b', pieces(1, 10), (body) => Promise.resolve(body.sizeBytes))).toBe(10)
})

test('complete modules are processed together while they fit into memory, however many they are', async () => {
  const bodies = createBodyReceiver({ folder })
  const { promise: end, resolve } = Promise.withResolvers<void>()
  let underWay = 0
  const work = async () => {
    underWay += 1
    await end
    underWay -= 1
  }
  const small = Array.from({ length: 8 }, () => bodies.receive('a', pieces(1, 1000), work))
  await expect.poll(() => underWay).toBe(8)
  resolve()
  await Promise.all(small)
})

test('large modules of one domain are processed one after the other; another domain has its own share', async () => {
  const bodies = createBodyReceiver({ folder })
  const { promise: end, resolve } = Promise.withResolvers<void>()
  const begun: string[] = []
  const receive = (domain: string) =>
    bodies.receive(domain, pieces(7, 8 * 1024 * 1024), async () => {
      begun.push(domain)
      await end
    })
  const all = [receive('a'), receive('a'), receive('a'), receive('b')]
  await expect.poll(() => begun.toSorted(), { timeout: 10_000 }).toEqual(['a', 'a', 'b'])
  resolve()
  await Promise.all(all)
  expect(begun).toHaveLength(4)
})
