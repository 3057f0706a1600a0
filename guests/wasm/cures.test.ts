import { expect, test } from 'vitest'
import { describeUnoffered } from './remedies.ts'

test.each([
  ['env.abort (i32, i32, i32, i32) -> ()', '--use abort='],
  ['env.seed () -> (f64)', 'wasi-shim'],
  ['gojs.runtime.wasmExit (i32) -> ()', 'GOOS=wasip1'],
  ['wbg.__wbg_log (i32) -> ()', 'wasm32-wasip1'],
  ['wasi.thread-spawn (i32) -> (i32)', 'without threads'],
  ['env.memory memory', '--import-memory'],
  ['env.sqrt_fast (f64) -> (f64)', 'undefined symbol'],
  ['wasi:cli/environment@0.3.0', 'WASI is served in the versions 0.2.x: wasi:cli, wasi:clocks'],
  ['wasi:keyvalue/store@0.2.0-draft', 'wasi:random, wasi:sockets'],
  ['wasi_unstable.fd_write (i32, i32, i32, i32) -> (i32)', 'wasi_snapshot_preview1'],
])('the refusal of %s contains the remedy', (unoffered, cure) => {
  expect(describeUnoffered([unoffered])).toContain(cure)
})

test('a remedy is given once, and an unknown import has none', () => {
  const sentence = describeUnoffered(['env.abort ()', 'env.abort ()', 'host.call ()'])
  expect(sentence.split('--use abort=')).toHaveLength(2)
  expect(describeUnoffered(['host.call ()'])).toBe('the module has unsupported imports: host.call ()')
})
