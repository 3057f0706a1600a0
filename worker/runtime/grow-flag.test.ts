import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import wabt from 'wabt'
import { DEFAULT_MODULE_BOUNDS } from '#core/wasm/index.ts'
import { limitModule } from './limits.ts'

const library = await wabt()
const bounds = { ...DEFAULT_MODULE_BOUNDS, memoryLimitBytes: 4 * 65_536 }
const features = { memory64: true, simd: true, exceptions: true, tail_call: true, threads: true }

function start(text: string) {
  const limited = limitModule(library.parseWat('test.wat', text, features).toBinary({}).buffer, bounds)
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(limited.bytes))
  const flag = limited.growFlag === undefined ? undefined : (exports[limited.growFlag] as WebAssembly.Global)
  return { exports: exports as Record<string, (...values: unknown[]) => unknown>, flag }
}

describe('a refused memory.grow', () => {
  test('is noted, and every answer stays what it was', () => {
    const { exports, flag } = start(`(module (memory 1)
      (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0))))`)
    expect([exports['grow']?.(2), flag?.value]).toEqual([1, 0])
    expect([exports['grow']?.(2), flag?.value]).toEqual([-1, 1])
    expect([exports['grow']?.(1), flag?.value]).toEqual([3, 1])
  })

  test('is noted for 64-bit memories', () => {
    const { exports, flag } = start(`(module (memory i64 1)
      (func (export "grow") (param i64) (result i64) (memory.grow (local.get 0))))`)
    expect([exports['grow']?.(9n), flag?.value]).toEqual([-1n, 1])
  })

  test('is found among globals, tables, branches and calls of the module itself', () => {
    const { exports, flag } = start(`(module
      (memory 1) (table 2 2 funcref) (elem (i32.const 0) $five $grow) (global $g (mut i64) (i64.const 64))
      (func $five (result i32) i32.const 5)
      (func $grow (result i32) (memory.grow (i32.const 64)))
      (func (export "run") (param i32) (result i32)
        (block (block (br_table 0 1 (local.get 0))) (return (call_indirect (result i32) (local.get 0))))
        (global.set $g (i64.const 16384)) (call_indirect (result i32) (local.get 0))))`)
    expect([exports['run']?.(0), flag?.value]).toEqual([5, 0])
    expect([exports['run']?.(1), flag?.value]).toEqual([-1, 1])
  })

  test('is told apart from the same bytes in constants, memory arguments, shuffles and try blocks', () => {
    const { exports, flag } = start(`(module (memory 1) (tag $t)
      (func (export "run") (result i32)
        (drop (i32.const 64)) (drop (i32.const 0x40)) (drop (f64.const 32)) (drop (i32.load offset=64 (i32.const 0)))
        (drop (i8x16.shuffle 16 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 (v128.const i32x4 64 64 64 64) (v128.const i32x4 0 0 0 0)))
        (block (br 0) unreachable)
        (memory.grow (i32.const 1))))`)
    expect([exports['run']?.(), flag?.value]).toEqual([1, 0])
  })
})

test('a module that never grows is not rewritten for it', () => {
  expect(start('(module (memory 1 2) (func (export "run") (block unreachable)))').flag).toBeUndefined()
})

test('an export that has the name of the flag already keeps it', () => {
  const { exports, flag } = start(`(module (memory 1)
    (func (export "skein:grow-refused") (result i32) (memory.grow (i32.const 9))))`)
  expect([exports['skein:grow-refused']?.(), flag?.value]).toEqual([-1, 1])
})

test('what a compiler wrote runs as before', () => {
  const hello = readFileSync(fileURLToPath(new URL('../../examples/hello/hello.wasm', import.meta.url)))
  expect(WebAssembly.validate(limitModule(hello, DEFAULT_MODULE_BOUNDS).bytes)).toBe(true)
})

test('whatever the engine accepts before, it accepts rewritten', () => {
  const bodies = fc.array(
    fc.constantFrom(
      '(drop (memory.grow (i32.const 0)))',
      '(drop (i32.const 64))',
      '(block (drop (memory.grow (i32.const 1))))',
      '(loop (br_if 0 (i32.const 0)))',
      '(if (i32.const 1) (then (drop (memory.grow (i32.const 2)))) (else nop))',
      '(i32.store offset=16448 (i32.const 0) (i32.const 1))',
      '(memory.fill (i32.const 0) (i32.const 64) (i32.const 0))',
      '(drop (i64.trunc_sat_f64_s (f64.const 1)))',
      '(v128.store (i32.const 0) (i8x16.splat (i32.const 64)))',
      '(try (do (throw $t)) (catch $t) (catch_all))',
      '(drop (select (i32.const 1) (i32.const 2) (i32.const 0)))',
    ),
    { maxLength: 12 },
  )
  fc.assert(
    fc.property(fc.array(bodies, { minLength: 1, maxLength: 4 }), (functions) => {
      const text = `(module (memory 1) (tag $t) ${functions.map((body) => `(func ${body.join(' ')})`).join('\n')})`
      const original = library.parseWat('test.wat', text, features).toBinary({}).buffer
      const grows = text.includes('memory.grow')
      const { bytes, growFlag } = limitModule(original, bounds)
      expect(WebAssembly.validate(bytes)).toBe(WebAssembly.validate(original))
      expect(growFlag !== undefined).toBe(grows)
    }),
    { numRuns: 300 },
  )
})
