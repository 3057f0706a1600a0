/**
 * What a guest reaches by what it is given: every descriptor and every file, socket and process function of WASI preview 1
 * from a core module, and of WASI 0.2 from a component (task-manager.md section 4).
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ISOLATION_LEVELS } from '#worker/isolation/index.ts'
import { componentFromText, moduleFromText, startPool } from '../../worker/pool.ts'
import type { TestPool } from '../../worker/pool.ts'

const isRoot = process.getuid?.() === 0
/** ERRNO_BADF and ERRNO_NOTSUP of preview 1: there is no such descriptor, or no such thing. */
const REFUSALS = [8, 57, 58]

/** Opens a path below each descriptor from 0 to 9; the results are the error numbers. */
const openEverywhere = (path: string) => `(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "${path}")
  (func (export "run") (param $fd i32) (result i32)
    (call $open (local.get $fd) (i32.const 1) (i32.const 1024) (i32.const ${path.length}) (i32.const 0)
      (i64.const -1) (i64.const -1) (i32.const 0) (i32.const 0))))`

describe.each(ISOLATION_LEVELS.filter((level) => level !== 'uid' || isRoot))('at level %s', (level) => {
  let host: TestPool
  beforeAll(async () => {
    host = await startPool({ level })
  })
  afterAll(() => host[Symbol.asyncDispose]())

  test.each(['/etc/passwd', '../../../etc/passwd', '.', 'worker/runner/entry.js', '/proc/self/environ'])(
    'a core module opens %s below no descriptor',
    async (path) => {
      const module = await moduleFromText(openEverywhere(path))
      for (let fd = 0; fd < 10; fd++) {
        const outcome = await host.run(module, { inputs: [fd] })
        expect(outcome, `descriptor ${fd}`).toMatchObject({ state: 'completed' })
        const [error] = outcome.state === 'completed' ? (outcome.results as number[]) : []
        expect(error, `descriptor ${fd}`).toBeGreaterThan(0)
      }
    },
  )

  test('a core module opens no connection and sends no signal', async () => {
    const module = await moduleFromText(`(module
      (import "wasi_snapshot_preview1" "sock_accept" (func $accept (param i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "proc_raise" (func $raise (param i32) (result i32)))
      (memory (export "memory") 1)
      (func (export "accept") (param $fd i32) (result i32) (call $accept (local.get $fd) (i32.const 0) (i32.const 8)))
      (func (export "raise") (result i32) (call $raise (i32.const 9))))`)
    for (let fd = 0; fd < 10; fd++) {
      const outcome = await host.run(module, { functionName: 'accept', inputs: [fd] })
      if (outcome.state === 'completed') expect(REFUSALS).toContain((outcome.results as number[])[0])
      else expect(outcome).toMatchObject({ state: 'failed' })
    }
    const raised = await host.run(module, { functionName: 'raise' })
    if (raised.state === 'completed') expect((raised.results as number[])[0]).toBeGreaterThan(0)
    else expect(raised).toMatchObject({ state: 'failed' })
    expect(await host.run('add', { inputs: [1, 2] })).toMatchObject({ results: [3] })
  })

  test('a component finds no preopened folder', async () => {
    const component = await componentFromText(`(component
      (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
        (export "get-directories" (func (result (list (tuple u32 string)))))))
      (core module $libc (memory (export "memory") 1)
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024))
      (core instance $libc (instantiate $libc))
      (core func $directories (canon lower (func $preopens "get-directories") (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))
      (core module $main (import "h" "directories" (func $directories (param i32))) (import "h" "memory" (memory 1))
        (func (export "run") (result i32) (call $directories (i32.const 16)) (i32.load (i32.const 20))))
      (alias core export $libc "memory" (core memory $memory))
      (core instance $h (export "directories" (func $directories)) (export "memory" (memory $memory)))
      (core instance $i (instantiate $main (with "h" (instance $h))))
      (func (export "run") (result u32) (canon lift (core func $i "run"))))`)
    expect(await host.run(component)).toMatchObject({ state: 'completed', results: 0 })
  })

  test('a guest sees the variables of its own run only', async () => {
    const module = await moduleFromText(`(module
      (import "wasi_snapshot_preview1" "environ_sizes_get" (func $sizes (param i32 i32) (result i32)))
      (memory (export "memory") 1)
      (func (export "run") (result i32) (drop (call $sizes (i32.const 0) (i32.const 4))) (i32.load (i32.const 0))))`)
    expect(await host.run(module, { env: { SECRET: 'of north' } })).toMatchObject({ results: [1] })
    expect(await host.run(module, { domain: 'south' })).toMatchObject({ results: [0] })
  })
})
