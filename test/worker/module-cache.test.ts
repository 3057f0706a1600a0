/** Modules by digest on disk: one download for many, resumed, verified, bounded. */
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { open as openFile } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { MockInstance } from 'vitest'
import { ServiceError } from '#core/errors/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { ModuleCache } from '#worker/modules/index.ts'
import type { ModuleSource } from '#worker/modules/index.ts'
import { digestOf } from './pool.ts'

const logger = createLogger({ name: 'test', level: 'silent' })
const never = new AbortController().signal
let folder: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'skein-modules-'))
})
afterEach(() => rmSync(folder, { recursive: true }))

const module = (size: number, fill: number) => new Uint8Array(size).fill(fill)
const wanted = (bytes: Uint8Array) => ({
  digest: digestOf(bytes),
  sizeBytes: bytes.length,
  sourceAddress: '',
  ticket: '',
  reference: '',
  peers: [],
})

function open(source: ModuleSource, maxBytes = 10_000): Promise<ModuleCache> {
  return ModuleCache.open({ folder, maxBytes, maxModuleBytes: 100_000, source, logger })
}

/** Serves from memory in chunks of 100 bytes, and counts how often it was asked from where. */
function serve(...modules: Uint8Array[]): { source: ModuleSource; offsets: number[] } {
  const offsets: number[] = []
  return {
    offsets,
    async *source({ digest }, offset) {
      offsets.push(offset)
      const bytes = modules.find((candidate) => digestOf(candidate) === digest) ?? new Uint8Array()
      for (let at = offset; at < bytes.length; at += 100) yield bytes.subarray(at, at + 100)
    },
  }
}

describe('a download', () => {
  test('happens once for all concurrent requests of the module, and never again', async () => {
    const bytes = module(1_000, 1)
    const { source, offsets } = serve(bytes)
    const cache = await open(source)
    const held = await Promise.all(Array.from({ length: 10 }, () => cache.get(wanted(bytes), never)))
    await cache.get(wanted(bytes), never)
    expect(offsets).toEqual([0])
    expect(readFileSync(held[0]?.path ?? '')).toEqual(Buffer.from(bytes))
    expect(cache.takeChanges()).toEqual({ added: [digestOf(bytes)], removed: [] })
    await cache.close()
  })

  test('that is interrupted resumes at its position', async () => {
    const bytes = module(1_000, 2)
    const offsets: number[] = []
    const cache = await open(async function* (_, offset) {
      offsets.push(offset)
      yield bytes.subarray(offset, offset + 400)
      if (offset + 400 < bytes.length) throw new ServiceError('unavailable', 'the link broke')
    })
    await cache.get(wanted(bytes), never)
    expect(offsets).toEqual([0, 400, 800])
    await cache.close()
  })

  test('that another process began resumes at its position', async () => {
    const bytes = module(1_000, 3)
    const first = await open(async function* () {
      yield bytes.subarray(0, 300)
      throw new ServiceError('not_found', 'gone')
    })
    await expect(first.get(wanted(bytes), never)).rejects.toThrow('gone')
    await first.close()
    const { source, offsets } = serve(bytes)
    const second = await open(source)
    await second.get(wanted(bytes), never)
    expect(offsets).toEqual([300])
    await second.close()
  })

  test('of other bytes than those of the digest is refused, and nothing is kept', async () => {
    const bytes = module(1_000, 4)
    const cache = await open(async function* () {
      yield module(1_000, 5)
    })
    await expect(cache.get(wanted(bytes), never)).rejects.toMatchObject({ kind: 'malformed' })
    expect(readdirSync(folder)).toEqual([])
    await cache.close()
  })

  test('of more bytes than announced is refused', async () => {
    const bytes = module(1_000, 6)
    const cache = await open(async function* () {
      yield bytes
      yield bytes
    })
    await expect(cache.get(wanted(bytes), never)).rejects.toMatchObject({ kind: 'malformed' })
    await cache.close()
  })

  test('of a missing module ends with the kind of the refusal, without retries', async () => {
    let tries = 0
    const cache = await open(async function* () {
      tries++
      yield new Uint8Array()
      throw new ServiceError('not_found', 'no such module')
    })
    await expect(cache.get(wanted(module(10, 1)), never)).rejects.toMatchObject({ kind: 'not_found' })
    expect(tries).toBe(1)
    await cache.close()
  })

  test('continues for the others when one of its callers aborts', async () => {
    const bytes = module(1_000, 7)
    const gate = Promise.withResolvers<void>()
    const cache = await open(async function* () {
      await gate.promise
      yield bytes
    })
    const abort = new AbortController()
    const impatient = cache.get(wanted(bytes), abort.signal)
    const patient = cache.get(wanted(bytes), never)
    abort.abort(new Error('enough'))
    await expect(impatient).rejects.toThrow('enough')
    gate.resolve()
    expect(await patient).toMatchObject({ path: expect.stringContaining('.wasm') as string })
    await cache.close()
  })
})

describe('a file of an earlier process', () => {
  const nameOf = (bytes: Uint8Array, ending: string) => join(folder, digestOf(bytes).replace('sha256:', '') + ending)

  test('that a power cut damaged is fetched again once for all concurrent requests', async () => {
    const bytes = module(1_000, 8)
    writeFileSync(nameOf(bytes, '.wasm'), new Uint8Array(1_000))
    const { source, offsets } = serve(bytes)
    const cache = await open(source)
    const held = await Promise.all([cache.get(wanted(bytes), never), cache.get(wanted(bytes), never)])
    expect(held.map(({ path }) => readFileSync(path))).toEqual([Buffer.from(bytes), Buffer.from(bytes)])
    expect(offsets).toEqual([0])
    await cache.close()
  })

  test('with a damaged download costs another attempt, not the run', async () => {
    const bytes = module(1_000, 9)
    writeFileSync(nameOf(bytes, '.part'), new Uint8Array(500))
    const { source, offsets } = serve(bytes)
    const cache = await open(source)
    const { path } = await cache.get(wanted(bytes), never)
    expect(readFileSync(path)).toEqual(Buffer.from(bytes))
    expect(offsets).toEqual([500, 0])
    await cache.close()
  })
})

describe('the bound in bytes', () => {
  test('evicts the least recently used module, and never one in use', async () => {
    const modules = [1, 2, 3, 4].map((fill) => module(1_000, fill))
    const [a, b, c, d] = modules as [Uint8Array, Uint8Array, Uint8Array, Uint8Array]
    const { source } = serve(...modules)
    const cache = await open(source, 3_000)
    const heldA = await cache.get(wanted(a), never)
    for (const bytes of [b, c]) (await cache.get(wanted(bytes), never)).release()
    ;(await cache.get(wanted(b), never)).release()
    ;(await cache.get(wanted(d), never)).release()
    expect(cache.digests().toSorted()).toEqual([a, b, d].map(digestOf).toSorted())
    expect(cache.takeChanges().removed).toEqual([digestOf(c)])
    heldA.release()
    await cache.close()
  })

  test('applies after a restart: the files on disk are known', async () => {
    const bytes = module(1_000, 1)
    const first = await open(serve(bytes).source)
    await first.get(wanted(bytes), never)
    await first.close()
    const { source, offsets } = serve(bytes)
    const second = await open(source)
    expect(second.digests()).toEqual([digestOf(bytes)])
    await second.get(wanted(bytes), never)
    expect(offsets).toEqual([])
    await second.close()
  })
})

describe('a full disk', () => {
  const fullDisk = Object.assign(new Error('no space left on device'), { code: 'ENOSPC' })
  /** The next writes of any file. */
  async function writes(): Promise<MockInstance<FileHandle['write']>> {
    await using handle = await openFile('/dev/null')
    return vi.spyOn(Object.getPrototypeOf(handle) as FileHandle, 'write')
  }
  afterEach(() => vi.restoreAllMocks())

  test('evicts unused modules, and the download continues', async () => {
    const [old, used, bytes] = [module(1_000, 1), module(1_000, 2), module(1_000, 3)]
    const cache = await open(serve(old, used, bytes).source)
    ;(await cache.get(wanted(old), never)).release()
    const held = await cache.get(wanted(used), never)
    ;(await writes()).mockRejectedValueOnce(fullDisk)
    expect(readFileSync((await cache.get(wanted(bytes), never)).path)).toEqual(Buffer.from(bytes))
    expect(readFileSync(held.path)).toEqual(Buffer.from(used))
    expect(cache.digests()).toEqual([digestOf(used), digestOf(bytes)])
    await cache.close()
  })

  test('without unused modules is reported after a few attempts, and leaves no part of the module', async () => {
    const bytes = module(1_000, 1)
    const { source, offsets } = serve(bytes)
    const cache = await open(source)
    ;(await writes()).mockRejectedValue(fullDisk)
    await expect(cache.get(wanted(bytes), never)).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'the disk of the worker is full',
    })
    expect(offsets).toEqual([0, 0, 0, 0])
    expect(readdirSync(folder)).toEqual([])
    vi.restoreAllMocks()
    expect(readFileSync((await cache.get(wanted(bytes), never)).path)).toEqual(Buffer.from(bytes))
    await cache.close()
  })
})

test('an invalid digest never becomes a path', async () => {
  const cache = await open(serve().source)
  const evil = { ...wanted(module(1, 1)), digest: 'sha256:../../etc/passwd' }
  await expect(cache.get(evil, never)).rejects.toMatchObject({ kind: 'malformed' })
  await cache.close()
})
