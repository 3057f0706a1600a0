/** Downloads of modules over a network that is slow, metered or cut again and again. */
import { createServer } from 'node:http'
import type { RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { createLogger } from '#core/logging/index.ts'
import { monotonicMs } from '#core/time.ts'
import { dialWithoutTls } from '#proto/index.ts'
import { Bandwidth, ModuleCache, ProxySource } from '#worker/modules/index.ts'
import { digestOf } from './pool.ts'

const KIB = 1024
const never = new AbortController().signal

/** A cache whose modules come from a server of these answers. */
async function startCache(answer: RequestListener, bytesPerSecond?: number) {
  const server = createServer(answer).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const folder = mkdtempSync(join(tmpdir(), 'skein-flaky-'))
  const source = new ProxySource({
    dial: () => Promise.resolve(dialWithoutTls()),
    managerAddress: () => '127.0.0.1:1',
    bandwidth: bytesPerSecond === undefined ? undefined : new Bandwidth(bytesPerSecond),
  })
  const cache = await ModuleCache.open({
    folder,
    maxBytes: 64 * KIB * KIB,
    maxModuleBytes: 64 * KIB * KIB,
    source: (wanted, offset, signal) => source.read(wanted, offset, signal),
    logger: createLogger({ name: 'test', level: 'silent' }),
  })
  const { port } = server.address() as AddressInfo
  return {
    cache,
    get: async (bytes: Uint8Array) => {
      const wanted = { digest: digestOf(bytes), sizeBytes: bytes.length, ticket: '', reference: '', peers: [] }
      const { path } = await cache.get({ ...wanted, sourceAddress: `127.0.0.1:${port}` }, never)
      return readFileSync(path)
    },
    [Symbol.asyncDispose]: async () => {
      await cache.close()
      server.closeAllConnections()
      server.close()
      rmSync(folder, { recursive: true })
    },
  }
}

/** Serves the bytes by range, and cuts every connection after so many bytes of a body. */
function serve(bytes: Uint8Array, cutAfter = Infinity): { answer: RequestListener; starts: number[] } {
  const starts: number[] = []
  const answer: RequestListener = (request, response) => {
    const [, first = 0, last = bytes.length - 1] = /^bytes=(\d+)-(\d+)?$/.exec(request.headers.range ?? '') ?? []
    const [start, end] = [Number(first), Number(last) + 1]
    starts.push(start)
    response.writeHead(206, {
      'content-length': end - start,
      'content-range': `bytes ${start}-${end - 1}/${bytes.length}`,
    })
    if (end - start <= cutAfter) return void response.end(bytes.subarray(start, end))
    response.write(bytes.subarray(start, start + cutAfter), () => setTimeout(() => response.destroy(), 5))
  }
  return { answer, starts }
}

test('a download that is cut more often than an attempt is repeated arrives, each byte once', async () => {
  const bytes = randomBytes(80 * KIB)
  const { answer, starts } = serve(bytes, 10 * KIB)
  await using host = await startCache(answer)
  expect(await host.get(bytes)).toEqual(bytes)
  expect(starts).toEqual([0, 10, 20, 30, 40, 50, 60, 70].map((kib) => kib * KIB))
  expect(host.cache.counts).toMatchObject({ fetches: 1, fetchFailures: 0 })
})

test('a source that never brings anything is given up', async () => {
  const bytes = randomBytes(10 * KIB)
  let asked = 0
  await using host = await startCache((_, response) => {
    asked++
    response.writeHead(200, { 'content-length': bytes.length })
    response.flushHeaders()
    setTimeout(() => response.destroy(), 5)
  })
  await expect(host.get(bytes)).rejects.toMatchObject({ kind: 'unavailable' })
  expect(asked).toBe(4)
})

test('a source that brings nothing more is given up after four more attempts', async () => {
  const bytes = randomBytes(30 * KIB)
  const { answer, starts } = serve(bytes, 10 * KIB)
  await using host = await startCache((request, response) => {
    if (starts.length === 0) return answer(request, response)
    starts.push(-1)
    response.destroy()
  })
  await expect(host.get(bytes)).rejects.toMatchObject({ kind: 'unavailable' })
  expect(starts).toEqual([0, -1, -1, -1, -1])
})

test('the limit holds for all downloads together, and each request is for the bytes of a second', async () => {
  const [one, other] = [randomBytes(96 * KIB), randomBytes(96 * KIB)]
  const starts: number[] = []
  const both = [serve(one), serve(other)]
  await using host = await startCache((request, response) => {
    starts.push(Number(/bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? -1))
    both[request.url?.includes(digestOf(one).slice(7)) === true ? 0 : 1]?.answer(request, response)
  }, 128 * KIB)
  const begin = monotonicMs()
  const got = await Promise.all([host.get(one), host.get(other)])
  const seconds = (monotonicMs() - begin) / 1000
  expect(got).toEqual([one, other])
  expect(starts).toEqual([0, 0])
  // 192 KiB at 128 KiB per second.
  expect(seconds).toBeGreaterThan(1.4)
  expect(seconds).toBeLessThan(6)
})

test('a limited download is fetched in parts, and after a cut from where it was', async () => {
  const bytes = randomBytes(200 * KIB)
  const { answer, starts } = serve(bytes, 48 * KIB)
  await using host = await startCache(answer, 64 * KIB)
  expect(await host.get(bytes)).toEqual(bytes)
  expect(starts).toEqual([0, 48, 96, 144, 192].map((kib) => kib * KIB))
}, 20_000)

test('a server without ranges is read at the limited rate', async () => {
  const bytes = randomBytes(64 * KIB)
  let asked = 0
  await using host = await startCache((_, response) => {
    asked++
    response.end(bytes)
  }, 64 * KIB)
  const begin = monotonicMs()
  expect(await host.get(bytes)).toEqual(bytes)
  expect(asked).toBe(1)
  expect(monotonicMs() - begin).toBeGreaterThan(900)
})
