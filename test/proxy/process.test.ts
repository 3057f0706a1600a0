/** The proxy as a process: kill -9 in the middle of a pull, and how much memory a large module costs. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { credentials } from '@grpc/grpc-js'
import { expect, test } from 'vitest'
import { ModuleService, createServiceClient } from '#proto/index.ts'
import { PROXY_TOKEN, asManager } from './running-proxy.ts'
import { digestOf, startRegistry, wasmOf } from './misbehaving-registry.ts'
import type { TestRegistry } from './misbehaving-registry.ts'

const CALL_DEADLINE_MS = 20_000
const MIB = 1024 * 1024

/** `npm run proxy` on a free port, ready. */
async function startProgram(dataDir: string, registry: TestRegistry) {
  const child: ChildProcess = spawn(process.execPath, [join(import.meta.dirname, '../../programs/proxy.ts')], {
    env: {
      SKEIN_DATA_DIR: dataDir,
      SKEIN_PROXY_PORT: '0',
      SKEIN_PROXY_TOKEN: PROXY_TOKEN,
      PROXY_REGISTRY_URL: registry.host,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = new Promise<number | null>((resolve) => child.once('exit', resolve))
  const address = await new Promise<string>((resolve, reject) => {
    void exited.then((code) => reject(new Error(`the proxy exited with ${code} before it was ready`)))
    if (child.stdout === null) return
    createInterface({ input: child.stdout }).on('line', (line) => {
      const { msg, address: bound } = JSON.parse(line) as { msg: string; address?: string }
      if (msg === 'module proxy is ready' && bound !== undefined) resolve(bound)
    })
  })
  const client = createServiceClient(ModuleService, address, credentials.createInsecure())
  return {
    pid: child.pid,
    /** Resolves, fetches and gives the digest of what came. */
    async bring(reference: string): Promise<string> {
      const found = await client.resolve({ reference }, { deadlineMs: CALL_DEADLINE_MS, metadata: asManager() })
      const stream = client.fetch(
        { digest: found.digest, reference: found.reference },
        { deadlineMs: CALL_DEADLINE_MS, metadata: asManager() },
      )
      const pieces: Uint8Array[] = []
      for await (const { data } of stream as AsyncIterable<{ data: Uint8Array }>) pieces.push(data)
      return digestOf(Buffer.concat(pieces))
    },
    async end(signal: NodeJS.Signals): Promise<number | null> {
      client.close()
      child.kill(signal)
      return await exited
    },
  }
}

test('kill -9 in the middle of a pull leaves nothing that is served, and the next start pulls again', async () => {
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
    const killed = await startProgram(dataDir, registry)
    const lost = expect(killed.bring('m')).rejects.toThrow(/UNAVAILABLE|CANCELLED/)
    await halfSent.promise
    const temporary = join(dataDir, 'proxy/blobs/tmp')
    await expect.poll(() => readdirSync(temporary).length, { timeout: CALL_DEADLINE_MS }).toBe(1)
    await killed.end('SIGKILL')
    await lost
    expect(readdirSync(join(dataDir, 'proxy/blobs/sha256'))).toEqual([])
    const next = await startProgram(dataDir, registry)
    expect(await next.bring('m')).toBe(digestOf(wasm))
    expect(await next.end('SIGTERM')).toBe(0)
  } finally {
    rmSync(dataDir, { recursive: true, force: true })
  }
}, 60_000)

test.runIf(process.platform === 'linux')(
  'a module of 64 MiB lets the proxy grow by less than 16 MiB while it is pulled and served',
  async () => {
    const dataDir = mkdtempSync(join(tmpdir(), 'skein-proxy-'))
    await using registry = await startRegistry()
    registry.module('small', 'latest', wasmOf(MIB, 2))
    const wasm = wasmOf(64 * MIB)
    registry.module('m', 'latest', wasm)
    try {
      const proxy = await startProgram(dataDir, registry)
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
  60_000,
)

/** The most memory that a process ever had resident (proc(5), VmHWM). */
function peakBytes(pid: number | undefined): number {
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024
}
