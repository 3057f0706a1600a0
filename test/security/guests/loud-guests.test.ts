/** What an ordinary guest can make its worker handle by writing: messages in number and bytes that stand between frames. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { componentFromText, moduleFromText, startPool } from '../../worker/pool.ts'
import type { TestPool } from '../../worker/pool.ts'

let host: TestPool
beforeAll(async () => {
  host = await startPool({ slots: 2, runners: 1 })
})
afterAll(() => host[Symbol.asyncDispose]())

const WRITES = 20_000

/** Waits until output is passed on as it comes, then writes a byte and waits for a nanosecond, again and again. */
const BYTE_BY_BYTE = `(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $wait (param $ns i64)
    (i64.store (i32.const 124) (local.get $ns))
    (drop (call $poll (i32.const 100) (i32.const 200) (i32.const 1) (i32.const 300))))
  (func (export "run") (param $n i32)
    (i32.store (i32.const 0) (i32.const 8)) (i32.store (i32.const 4) (i32.const 1))
    (i32.store8 (i32.const 8) (i32.const 120))
    (call $wait (i64.const 300000000))
    (loop $again
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))
      (call $wait (i64.const 1))
      (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))))`

test('a guest that writes byte by byte without a pause causes few messages', async () => {
  let pieces = 0
  let bytes = 0
  const outcome = await host.run(await moduleFromText(BYTE_BY_BYTE), {
    inputs: [WRITES],
    onOutput(_, data) {
      pieces++
      bytes += data.length
    },
  })
  expect(outcome).toMatchObject({ state: 'completed', durationMs: expect.any(Number) as number })
  expect(bytes).toBe(WRITES)
  const { durationMs } = outcome as { durationMs: number }
  // One each quarter of a second, one each 16 KiB, the first and the last.
  expect(pieces).toBeLessThanOrEqual(Math.ceil(durationMs / 250) + 4)
})

test('the console output of a component does not reach the output of its process', async () => {
  const folder = join(host.componentsFolder, 'loud')
  mkdirSync(folder)
  const script = `(function () { 'use strict'
    const loud = () => { console.log('[{]}'.repeat(10000)); console.debug('x'); console.error('y') }
    loud()
    return () => ({ run: () => { loud(); return 7 } })
  })()`
  writeFileSync(join(folder, 'component.js'), script)
  writeFileSync(join(folder, 'files.json'), '["component.js"]')
  const bytes = await componentFromText(`(component
    (core module $m (func (export "f") (result i32) (i32.const 7))) (core instance $i (instantiate $m))
    (func (export "run") (result u32) (canon lift (core func $i "f"))))`)
  for (let time = 0; time < 3; time++) {
    expect(await host.run(bytes, { componentFolder: folder })).toMatchObject({ state: 'completed', results: 7 })
  }
})
