/** The proxy as a process: kill -9 in the middle of a pull, and how much memory a large module costs. */
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { digestOf, startRegistry, wasmOf } from './misbehaving-registry.ts'
import { startProxyProgram } from './proxy-program.ts'

const CALL_DEADLINE_MS = 60_000
const MIB = 1024 * 1024

test('kill -9 during a pull leaves no partial module, and the next start pulls again', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'skein-proxy-'))
  await using registry = await startRegistry()
  const wasm = wasmOf(4 * MIB)
  registry.module('m', 'latest', wasm)
  const halfSent = Promise.withResolvers<void>()
  let isFirst = true
  registry.intercept((_request, response, path) => {
    if (!path.includes('/blobs/') || !isFirst) return false
    isFirst = false
    response.writeHead(200, { 'content-length': wasm.length })
    response.write(wasm.subarray(0, 2 * MIB), () => halfSent.resolve())
    return true
  })
  try {
    await using killed = await startProxyProgram(dataDir, registry.host)
    const lost = expect(killed.bring('m')).rejects.toThrow(/fetch failed|terminated/)
    await halfSent.promise
    const temporary = join(dataDir, 'proxy/blobs/tmp')
    await expect.poll(() => readdirSync(temporary).length, { timeout: CALL_DEADLINE_MS }).toBe(1)
    await killed.end('SIGKILL')
    await lost
    expect(readdirSync(join(dataDir, 'proxy/blobs/sha256'))).toEqual([])
    await using next = await startProxyProgram(dataDir, registry.host)
    expect(await next.bring('m')).toBe(digestOf(wasm))
    expect(await next.end('SIGTERM')).toBe(0)
  } finally {
    rmSync(dataDir, { recursive: true, force: true })
  }
}, 240_000)

test('kill -9 during a delivery costs the reader only the rest of it, and the registry nothing', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'skein-proxy-'))
  await using registry = await startRegistry()
  const wasm = wasmOf(8 * MIB)
  registry.module('m', 'latest', wasm)
  try {
    await using killed = await startProxyProgram(dataDir, registry.host)
    const found = await killed.resolve('m')
    const pieces: Buffer[] = []
    const reading = (async () => {
      for await (const piece of killed.read(found, 0)) {
        pieces.push(Buffer.from(piece))
        // Far more is still to come than may be on its way.
        if (pieces.length === 1) await killed.end('SIGKILL')
      }
    })()
    await expect(reading).rejects.toMatchObject({ kind: 'unavailable' })
    const offset = Buffer.concat(pieces).length
    expect(offset).toBeLessThan(wasm.length)
    await using next = await startProxyProgram(dataDir, registry.host)
    for await (const piece of next.read(found, offset)) pieces.push(Buffer.from(piece))
    expect(digestOf(Buffer.concat(pieces))).toBe(digestOf(wasm))
    expect(registry.count('/blobs/')).toBe(1)
    await next.end('SIGTERM')
  } finally {
    rmSync(dataDir, { recursive: true, force: true })
  }
}, 240_000)

test.runIf(process.platform === 'linux')(
  'a module of 64 MiB increases the memory of the proxy by less than 16 MiB while it is pulled and served',
  async () => {
    const dataDir = mkdtempSync(join(tmpdir(), 'skein-proxy-'))
    await using registry = await startRegistry()
    registry.module('small', 'latest', wasmOf(MIB, 2))
    const wasm = wasmOf(64 * MIB)
    registry.module('m', 'latest', wasm)
    try {
      await using proxy = await startProxyProgram(dataDir, registry.host)
      await proxy.bring('small')
      const before = peakBytes(proxy.pid)
      expect(await proxy.bring('m')).toBe(digestOf(wasm))
      const grown = peakBytes(proxy.pid) - before
      await proxy.end('SIGTERM')
      expect(grown).toBeLessThan(16 * MIB)
    } finally {
      rmSync(dataDir, { recursive: true, force: true })
    }
  },
  240_000,
)

/** The most memory that a process ever had resident (proc(5), VmHWM). */
function peakBytes(pid: number | undefined): number {
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024
}
