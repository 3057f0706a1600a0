/** Results on disk until they are acknowledged (task-manager.md section 3, rule 6), across restarts and torn writes. */
import { appendFileSync, mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { Spool } from '#worker/spool/index.ts'

const MIB = 1024 * 1024
let folder: string
let path: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'skein-spool-'))
  path = join(folder, 'spool')
})
afterEach(() => rmSync(folder, { recursive: true }))

const open = () => Spool.open(path, { maxBytes: MIB })
const bytes = (text: string) => new TextEncoder().encode(text)
const keys = (spool: Spool) => spool.results().map(({ key }) => key)

test('a result is kept over a restart until it is acknowledged', async () => {
  let spool = await open()
  await spool.add('a', bytes('one'))
  await spool.add('b', bytes('two'))
  await spool.close()

  spool = await open()
  expect(spool.results()).toEqual([
    { key: 'a', payload: bytes('one') },
    { key: 'b', payload: bytes('two') },
  ])
  spool.acknowledge('a')
  await spool.close()

  spool = await open()
  expect(keys(spool)).toEqual(['b'])
  await spool.close()
})

test('many concurrent results are all kept, in order', async () => {
  const spool = await open()
  const names = Array.from({ length: 300 }, (_, index) => `run-${index}`)
  await Promise.all(names.map((name) => spool.add(name, bytes(name))))
  await spool.close()
  const again = await open()
  expect(keys(again)).toEqual(names)
  await again.close()
})

test('a repeated result is kept once', async () => {
  const spool = await open()
  await Promise.all([spool.add('a', bytes('one')), spool.add('a', bytes('one'))])
  expect(spool.size).toBe(1)
  await spool.close()
})

test('a file whose results are all acknowledged is truncated', async () => {
  const spool = await open()
  for (let round = 0; round < 50; round++) {
    await spool.add(`run-${round}`, new Uint8Array(10_000))
    spool.acknowledge(`run-${round}`)
  }
  await spool.close()
  expect(statSync(path).size).toBeLessThan(50_000)
})

describe('a patient result', () => {
  /** What a crash would leave. */
  const onDisk = () => readFileSync(path, 'latin1')

  beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }))
  afterEach(() => void vi.useRealTimers())

  test('that is acknowledged soon never reaches the disk', async () => {
    const spool = await open()
    const adding = spool.add('a', bytes('one'), 'deferred')
    expect(keys(spool)).toEqual(['a'])
    spool.acknowledge('a')
    await adding
    expect(spool.size).toBe(0)
    await vi.runAllTimersAsync()
    await spool.close()
    expect(onDisk()).toBe('')
  })

  test('is on disk when it was not acknowledged for a while, followed by its acknowledgement', async () => {
    vi.useRealTimers()
    const spool = await open()
    await spool.add('a', bytes('one'), 'deferred')
    expect(onDisk()).toContain('aone')
    await spool.add('b', bytes('two'))
    spool.acknowledge('a')
    await spool.close()
    const again = await open()
    expect(keys(again)).toEqual(['b'])
    await again.close()
  })

  test('is on disk at once without a manager to acknowledge it, and when the spool closes', async () => {
    const spool = await open()
    const adding = spool.add('a', bytes('one'), 'deferred')
    spool.writeDeferredNow()
    await adding
    expect(onDisk()).toContain('aone')
    void spool.add('b', bytes('two'), 'deferred')
    await spool.close()
    expect(onDisk()).toContain('btwo')
  })

  test('next to results that are written at once leaves the file empty after all acknowledgements', async () => {
    const spool = await open()
    await spool.add('a', bytes('one'))
    const adding = spool.add('b', bytes('two'), 'deferred')
    spool.acknowledge('a')
    spool.acknowledge('b')
    await adding
    await spool.close()
    expect(onDisk()).toBe('')
  })
})

test('the spool reports that it is full at its limit, and no longer after acknowledgements', async () => {
  const spool = await open()
  await spool.add('a', new Uint8Array(MIB))
  expect(spool.isFull).toBe(true)
  spool.acknowledge('a')
  expect(spool.isFull).toBe(false)
  await spool.close()
})

test('a record that a crash truncated is dropped, and complete ones before it stay', async () => {
  const spool = await open()
  await spool.add('a', bytes('one'))
  const whole = statSync(path).size
  await spool.add('b', bytes('two'))
  await spool.close()
  truncateSync(path, whole + 5)
  const again = await open()
  expect(keys(again)).toEqual(['a'])
  await again.add('c', bytes('three'))
  await again.close()
  const last = await open()
  expect(keys(last)).toEqual(['a', 'c'])
  await last.close()
})

test('opening any file neither fails nor invents results', async () => {
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), fc.boolean(), async (garbage, isBehindResult) => {
      rmSync(path, { force: true })
      if (isBehindResult) {
        const spool = await open()
        await spool.add('a', bytes('one'))
        await spool.close()
        appendFileSync(path, garbage)
      } else writeFileSync(path, garbage)
      const spool = await open()
      expect(keys(spool)).toEqual(isBehindResult ? ['a'] : [])
      await spool.close()
      expect(readFileSync(path).length).toBeLessThan(60)
    }),
    { numRuns: 100 },
  )
})
