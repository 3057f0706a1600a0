import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import wabt from 'wabt'
import { DEFAULT_MODULE_BOUNDS, SECTION, readModule } from '#guests/wasm/index.ts'
import { limitModule } from './limits.ts'

const library = await wabt()
const bounds = { ...DEFAULT_MODULE_BOUNDS, memoryLimitBytes: 4 * 65_536 }

function limited(text: string): {
  memories: [bigint, bigint | undefined][]
  tables: [bigint, bigint | undefined][]
  bytes: Uint8Array
} {
  const features = { memory64: true, reference_types: true }
  const original = library.parseWat('test.wat', text, features).toBinary({ write_debug_names: true }).buffer
  const { bytes } = limitModule(original, bounds)
  const layout = readModule(bytes, { allowGc: false })
  const pairs = (limits: typeof layout.memories): [bigint, bigint | undefined][] =>
    limits.map(({ min, max }) => [min, max])
  return { memories: pairs(layout.memories), tables: pairs(layout.tables), bytes }
}

test('adds a maximum to a memory that has none', () => {
  expect(limited('(module (memory 1))').memories).toEqual([[1n, 4n]])
})

test('lowers a maximum above the limit and keeps one below it', () => {
  expect(limited('(module (memory 1 100))').memories).toEqual([[1n, 4n]])
  expect(limited('(module (memory 1 2))').memories).toEqual([[1n, 2n]])
})

test('leaves imports alone: the module that defines a memory or a table bounds it', () => {
  const imports = '(import "env" "memory" (memory 1)) (import "env" "table" (table 2 funcref))'
  const { memories, tables } = limited(`(module ${imports} (table 3 funcref))`)
  expect(memories).toEqual([[1n, undefined]])
  expect(tables).toEqual([
    [2n, undefined],
    [3n, 1_000_000n],
  ])
})

test('limits 64-bit memories too', () => {
  expect(limited('(module (memory i64 1 100000))').memories).toEqual([[1n, 4n]])
})

test('gives tables without a maximum a share of the rest', () => {
  expect(limited('(module (table 10 20 funcref) (table 4 funcref) (table 6 funcref))').tables).toEqual([
    [10n, 20n],
    [4n, 4n + 499_985n],
    [6n, 6n + 499_985n],
  ])
})

test('leaves a module within the limits unchanged, byte for byte', () => {
  const original = library.parseWat('test.wat', '(module (memory 1 2) (table 1 1 funcref))').toBinary({}).buffer
  expect(limitModule(original, bounds).bytes).toBe(original)
})

test('the rewritten module compiles, runs and cannot grow beyond the limit', () => {
  fc.assert(
    fc.property(fc.nat(4), fc.option(fc.integer({ min: 4, max: 65_536 })), fc.nat(3), (min, max, tables) => {
      const { bytes } = limited(`(module
        (memory ${min} ${max ?? ''}) ${'(table 1 funcref)'.repeat(tables)}
        (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0)))
        (func (export "five") (result i32) (i32.const 5)))`)
      const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes))
      const grow = exports['grow'] as (pages: number) => number
      expect((exports['five'] as () => number)()).toBe(5)
      expect(grow(4 - min + 1)).toBe(-1)
      expect(grow(4 - min)).toBe(min)
    }),
    { numRuns: 100 },
  )
})

test('compiler output stays valid, and only the patched section changes', () => {
  const hello = readFileSync(fileURLToPath(new URL('../../examples/hello/hello.wasm', import.meta.url)))
  const { layout, bytes } = limitModule(hello, DEFAULT_MODULE_BOUNDS)
  expect(WebAssembly.validate(bytes)).toBe(true)
  const contents = ({ bytes: whole, sections }: typeof layout) =>
    sections.map(({ id, contentStart, end }) => [id, Buffer.from(whole.subarray(contentStart, end)).toString('hex')])
  const [before, after] = [contents(layout), contents(readModule(bytes, { allowGc: false }))]
  expect(after.map(([id]) => id)).toEqual(before.map(([id]) => id))
  expect(after.filter((section, at) => section[1] !== before[at]?.[1]).map(([id]) => id)).toEqual([SECTION.memory])
})

test('returns the memory limit: the whole limit, or the share of a memory of a component', () => {
  const bytes = library.parseWat('test.wat', '(module (memory 2))').toBinary({}).buffer
  expect(limitModule(bytes, bounds).memoryLimitBytes).toBe(4 * 65_536)
  expect(limitModule(bytes, bounds, 1n).memoryLimitBytes).toBe(3 * 65_536)
})
