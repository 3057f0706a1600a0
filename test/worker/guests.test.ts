/** What guests may do and how their runs end (task-manager.md sections 1, 2 and 4), over real runner processes. */
import { readFileSync } from 'node:fs'
import wabt from 'wabt'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { WASI_PREVIEW1_FUNCTIONS, wasiPreview1Signature } from '#guests/wasm/wasi-preview1.ts'
import { moduleFromText, startPool, until } from './pool.ts'
import type { TestPool } from './pool.ts'

let host: TestPool
beforeAll(async () => {
  host = await startPool()
})
afterAll(() => host[Symbol.asyncDispose]())

describe('a core module', () => {
  test('receives its inputs and returns its results as an array', async () => {
    expect(await host.run('add', { inputs: [5, 3] })).toMatchObject({ state: 'completed', results: [8] })
  })

  test('returns 64-bit results beyond 2^53 as text', async () => {
    expect(await host.run('fibonacci', { inputs: [30] })).toMatchObject({ results: [832040] })
    expect(await host.run('fibonacci', { inputs: [90] })).toMatchObject({ results: ['2880067194370816120'] })
  })

  test('returns several values, and none, as an array', async () => {
    const several = await moduleFromText('(module (func (export "run") (result i32 f64) i32.const 1 f64.const 2.5))')
    expect(await host.run(several)).toMatchObject({ results: [1, 2.5] })
    const none = await moduleFromText('(module (func (export "run")))')
    expect(await host.run(none)).toMatchObject({ state: 'completed', results: [] })
  })

  test('whose pointers lie outside of its memory traps or gets an error number, and is never treated as one without memory', async () => {
    const modules = WASI_PREVIEW1_FUNCTIONS.filter((name) => name !== 'proc_exit').flatMap((name) => {
      const { params } = wasiPreview1Signature(name)
      const calls = [-1, -16, 65_535, 65_536].map((value) =>
        params.map((type, index) => `(${type}.const ${index === 0 && type === 'i32' ? 1 : value})`).join(' '),
      )
      return calls.map((call) =>
        moduleFromText(`(module
          (import "wasi_snapshot_preview1" "${name}" (func $call (param ${params.join(' ')}) (result i32)))
          (memory (export "memory") 1)
          (data (i32.const 0) "\\00\\00\\00\\00\\ff\\ff\\ff\\ff")
          (func (export "run") (result i32) ${call} (call $call)))`),
      )
    })
    const outcomes = await Promise.all(modules.map(async (module) => host.run(await module)))
    const ends = outcomes.map((outcome) => (outcome.state === 'failed' ? outcome.reason : outcome.state))
    expect(new Set(ends)).toEqual(new Set(['completed', 'trap']))
  })

  test('has no sockets: its own descriptor is not one, and no other descriptor exists', async () => {
    const shutdown = await moduleFromText(`(module
      (import "wasi_snapshot_preview1" "sock_shutdown" (func $shutdown (param i32 i32) (result i32)))
      (func (export "run") (param $fd i32) (result i32) (call $shutdown (local.get $fd) (i32.const 1))))`)
    // ENOTSOCK and EBADF of the witx.
    expect(await host.run(shutdown, { inputs: [1] })).toMatchObject({ results: [57] })
    expect(await host.run(shutdown, { inputs: [7] })).toMatchObject({ results: [8] })
  })

  test('is refused invalid inputs, with the accepted ones', async () => {
    const outcome = await host.run('add', { inputs: [1] })
    expect(outcome).toMatchObject({ reason: 'guest_error', error: 'add takes 2 inputs (i32, i32), not 1' })
  })

  test('ends with no_such_function and the existing ones', async () => {
    const outcome = await host.run('add', { functionName: 'subtract', inputs: [1, 2] })
    expect(outcome).toMatchObject({
      reason: 'no_such_function',
      error: expect.stringContaining('it exports add') as string,
    })
  })

  test('runs the function with the given name, else task name, _start, run, main, or its only one', async () => {
    const module = await moduleFromText(`(module
      (func (export "main") (result i32) i32.const 1) (func (export "run") (result i32) i32.const 2)
      (func (export "pump") (result i32) i32.const 3) (func (export "other") (result i32) i32.const 4))`)
    expect(await host.run(module, { functionName: 'other', programName: 'pump' })).toMatchObject({ results: [4] })
    expect(await host.run(module, { programName: 'pump' })).toMatchObject({ results: [3] })
    expect(await host.run(module, { programName: 'unknown' })).toMatchObject({ results: [2] })
    expect(await host.run('add', { programName: 'unknown', inputs: [1, 1] })).toMatchObject({ results: [2] })
  })

  test('starts with a new instance for every run: nothing of an earlier run is visible', async () => {
    const counter = await moduleFromText(`(module (global $n (mut i32) (i32.const 0))
      (func (export "run") (result i32) (global.set $n (i32.add (global.get $n) (i32.const 1))) (global.get $n)))`)
    for (let run = 0; run < 3; run++) expect(await host.run(counter)).toMatchObject({ results: [1] })
  })
})

describe('a command of WASI preview 1', () => {
  test('prints its arguments in any script', async () => {
    const outcome = await host.run('hello', { args: ['größe', '温度', ''] })
    const stdout = 'hello\ngröße\n温度\n\n'
    expect(outcome).toMatchObject({ state: 'completed', results: { exit_code: 0, stdout, stderr: '' } })
  })

  test('ends with guest_error when its exit code is not 0, and keeps its output', async () => {
    const outcome = await host.run('hello', { args: ['--fail'] })
    expect(outcome).toMatchObject({
      state: 'failed',
      reason: 'guest_error',
      results: { exit_code: 3, stdout: 'hello\n', stderr: 'asked to fail\n' },
    })
  })

  test('has its output cut at the limit, with a mark', async () => {
    const outcome = await host.run('hello', { args: ['x'.repeat(1000)], maxOutputBytes: 100 })
    expect(outcome).toMatchObject({ isOutputTruncated: true })
    expect(outcome).toMatchObject({ stdout: `hello\n${'x'.repeat(94)}\n[truncated: 907 more bytes]\n` })
  })

  test('sees its environment and no files', async () => {
    const module = await moduleFromText(`(module
      (import "wasi_snapshot_preview1" "environ_sizes_get" (func $sizes (param i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
      (memory (export "memory") 1)
      (func (export "run") (result i32 i32 i32)
        (drop (call $sizes (i32.const 0) (i32.const 4)))
        (i32.load (i32.const 0)) (i32.load (i32.const 4)) (call $prestat (i32.const 3) (i32.const 8))))`)
    // ERRNO_BADF is 8: there is no fourth descriptor, so there is no folder.
    expect(await host.run(module, { env: { A: 'ä' } })).toMatchObject({ results: [1, 5, 8] })
  })

  test('waits without using a core, and its timeout ends the wait', async () => {
    const sleeper = await moduleFromText(`(module
      (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1)
      (func (export "run") (param $ns i64) (result i32)
        (i64.store (i32.const 24) (local.get $ns)) (i32.store (i32.const 16) (i32.const 1))
        (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))
        (i32.load (i32.const 128))))`)
    expect(await host.run(sleeper, { inputs: [2_000_000] })).toMatchObject({ results: [1] })
    const outcome = await host.run(sleeper, { inputs: ['60000000000'], timeoutMs: 100 })
    expect(outcome).toMatchObject({ reason: 'timeout' })
  })

  test('is refused an import that no worker offers, with its name', async () => {
    const module = await moduleFromText('(module (import "env" "open" (func)) (func (export "run")))')
    const outcome = await host.run(module)
    expect(outcome).toMatchObject({ reason: 'module_invalid', error: expect.stringContaining('env.open') as string })
  })
})

describe('a guest that goes wrong', () => {
  test('ends with timeout when it never returns', async () => {
    expect(await host.run('endless', { timeoutMs: 100 })).toMatchObject({ state: 'failed', reason: 'timeout' })
  })

  const memoryLimitBytes = 8 * 65_536

  test('ends with trap when it traps, and the text mentions a memory at its limit', async () => {
    expect(await host.run('memory-eater', { memoryLimitBytes })).toMatchObject({
      state: 'failed',
      reason: 'trap',
      error: 'unreachable, with its memory at 524288 of at most 524288 bytes',
    })
    const module = await moduleFromText(`(module (memory (export "memory") 1)
      (func (export "run") (param $pages i32) (drop (memory.grow (local.get $pages))) unreachable))`)
    const ofSmall = { reason: 'trap', error: 'unreachable' }
    expect(await host.run(module, { inputs: [5], memoryLimitBytes })).toMatchObject(ofSmall)
    expect(await host.run(module, { inputs: [100], memoryLimitBytes })).toMatchObject(ofSmall)
  })

  test('ends with oom when it exits with a failure at its memory limit, and not otherwise', async () => {
    const module = await moduleFromText(`(module
      (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      (memory (export "memory") 1)
      (func (export "run") (param $pages i32) (param $code i32)
        (drop (memory.grow (local.get $pages))) (call $exit (local.get $code)) unreachable))`)
    const exit = (pages: number, code: number) => host.run(module, { inputs: [pages, code], memoryLimitBytes })
    for (const pages of [6, 7]) {
      expect(await exit(pages, 2)).toMatchObject({
        state: 'failed',
        reason: 'oom',
        error: `run exited with code 2, with its memory at ${(pages + 1) * 65_536} of at most 524288 bytes`,
        results: { exit_code: 2 },
      })
    }
    expect(await exit(5, 2)).toMatchObject({ reason: 'guest_error', error: 'run exited with code 2' })
    expect(await exit(8, 2)).toMatchObject({ reason: 'guest_error' })
    expect(await exit(7, 0)).toMatchObject({ state: 'completed', results: { exit_code: 0 } })
  })

  /** Writes the text to a stream and then does what the rest says. */
  const speaker = (stream: 1 | 2, text: string, end: string) => `(module
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1) (data (i32.const 0) "\\10\\00\\00\\00\\${text.length.toString(16).padStart(2, '0')}\\00\\00\\00")
    (data (i32.const 16) ${JSON.stringify(text)})
    (func (export "run") (drop (call $write (i32.const ${stream}) (i32.const 0) (i32.const 1) (i32.const 8))) ${end}))`

  test('has its earlier stderr in its error, and nothing of stdout', async () => {
    const exits = await moduleFromText(speaker(2, 'line 1: no sensor', '(call $exit (i32.const 3))'))
    expect(await host.run(exits)).toMatchObject({
      reason: 'guest_error',
      error: 'run exited with code 3\nline 1: no sensor',
    })
    const traps = await moduleFromText(speaker(2, 'assertion failed', 'unreachable'))
    expect(await host.run(traps)).toMatchObject({ reason: 'trap', error: 'unreachable\nassertion failed' })
    const quiet = await moduleFromText(speaker(1, 'a result', 'unreachable'))
    expect(await host.run(quiet)).toMatchObject({ reason: 'trap', error: 'unreachable' })
  })

  test.each(['fatal error: out of memory', 'memory allocation of 104857600 bytes failed'])(
    'ends with oom when it fails with: %s',
    async (sentence) => {
      const exits = await moduleFromText(speaker(2, sentence, '(call $exit (i32.const 2))'))
      expect(await host.run(exits)).toMatchObject({ reason: 'oom' })
      const traps = await moduleFromText(speaker(2, sentence, 'unreachable'))
      expect(await host.run(traps)).toMatchObject({ reason: 'oom' })
      const completes = await moduleFromText(speaker(2, sentence, ''))
      expect(await host.run(completes)).toMatchObject({ state: 'completed' })
    },
  )

  test('shows its stack after a trap, with the names of its functions, cut and without control characters', async () => {
    const text = `(module (func $inner unreachable) (func $${'x'.repeat(500)} call $inner)
      (func (export "run") call 1))`
    const named = (await wabt()).parseWat('named.wat', text).toBinary({ write_debug_names: true }).buffer
    const outcome = await host.run(named)
    expect(outcome).toMatchObject({ reason: 'trap', error: 'unreachable' })
    const { frames = [] } = outcome as { frames?: string[] }
    expect(frames).toHaveLength(3)
    expect(frames[0]).toMatch(/^inner \(function 0\)$/)
    expect(frames[1]).toMatch(/^x{200} \(function 1\)$/)
    const deep = await moduleFromText('(module (func $run (export "run") (call $run)))')
    expect((await host.run(deep)) as { frames?: string[] }).toMatchObject({
      frames: { length: 20 },
    })
  })

  test('keeps output that is not UTF-8 as bytes', async () => {
    const binary = (await moduleFromText(speaker(1, 'abcd', ''))).slice()
    const at = Buffer.from(binary).indexOf('abcd')
    binary.set([0xff, 0x00], at)
    expect(await host.run(binary)).toMatchObject({ state: 'completed', stdout: { base64: '/wBjZA==' } })
  })

  test('has no position in its standard streams, as in a pipe', async () => {
    const module = await moduleFromText(`(module
      (import "wasi_snapshot_preview1" "fd_pwrite" (func $write (param i32 i32 i32 i64 i32) (result i32)))
      (import "wasi_snapshot_preview1" "fd_pread" (func $read (param i32 i32 i32 i64 i32) (result i32)))
      (import "wasi_snapshot_preview1" "fd_seek" (func $seek (param i32 i64 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "fd_tell" (func $tell (param i32 i32) (result i32)))
      (memory (export "memory") 1)
      (func (export "run") (result i32 i32 i32 i32)
        (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i64.const 0) (i32.const 16))
        (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i64.const 0) (i32.const 16))
        (call $seek (i32.const 1) (i64.const 0) (i32.const 1) (i32.const 16))
        (call $tell (i32.const 1) (i32.const 16))))`)
    const ESPIPE = 70
    expect(await host.run(module)).toMatchObject({ results: [ESPIPE, ESPIPE, ESPIPE, ESPIPE] })
  })

  test('with one function as a reactor requires no name of it, and is initialized before', async () => {
    const module = await moduleFromText(`(module (global $state (mut i32) (i32.const 0))
      (func (export "_initialize") (global.set $state (i32.const 7)))
      (func (export "measure") (result i32) (global.get $state)))`)
    expect(await host.run(module)).toMatchObject({ state: 'completed', results: [7] })
  })

  test('ends with trap when it passes the host a pointer outside of its memory', async () => {
    const module = await moduleFromText(`(module
      (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
      (memory (export "memory") 1)
      (func (export "run") (drop (call $sizes (i32.const -4) (i32.const 0)))))`)
    expect(await host.run(module)).toMatchObject({ state: 'failed', reason: 'trap' })
  })

  test('ends with module_invalid when its tables require gigabytes, and other runs continue', async () => {
    const [bomb, neighbour] = await Promise.all([host.run('table-bomb'), host.run('add', { inputs: [1, 2] })])
    expect(bomb).toMatchObject({
      reason: 'module_invalid',
      error: expect.stringContaining('320000000 entries') as string,
    })
    expect(neighbour).toMatchObject({ results: [3] })
  })

  test('ends with module_invalid when its initial memory exceeds the limit, with both figures', async () => {
    const module = await moduleFromText('(module (memory 9) (func (export "run")))')
    const outcome = await host.run(module, { memoryLimitBytes: 8 * 65_536 })
    expect(outcome).toMatchObject({ reason: 'module_invalid' })
    expect(outcome).toMatchObject({ error: expect.stringMatching(/589824 bytes.*524288 bytes/) as string })
  })

  test.each([
    ['unreachable', '(module (func (export "run") unreachable))'],
    ['divide by zero', '(module (func (export "run") (drop (i32.div_s (i32.const 1) (i32.const 0)))))'],
    ['call stack exhausted', '(module (func $run (export "run") (call $run)))'],
    ['memory access out of bounds', '(module (memory 1) (func (export "run") (drop (i32.load (i32.const 65536)))))'],
  ])('ends with trap: %s', async (sentence, text) => {
    const outcome = await host.run(await moduleFromText(text))
    expect(outcome).toMatchObject({
      state: 'failed',
      reason: 'trap',
      error: expect.stringContaining(sentence) as string,
    })
  })

  test('ends with guest_error when it throws and does not catch', async () => {
    const module = await moduleFromText('(module (tag $t) (func (export "run") (throw $t)))')
    expect(await host.run(module)).toMatchObject({ reason: 'guest_error' })
  })

  test('ends with module_invalid when its code is not well typed', async () => {
    const whole = await moduleFromText('(module (func (export "run") (result i32) i32.const 1))')
    // The body `i32.const 1` becomes `i64.const 1`: well formed, badly typed.
    const bytes = whole.map((byte, at) => (byte === 0x41 && at > whole.length - 6 ? 0x42 : byte))
    expect(await host.run(bytes)).toMatchObject({ reason: 'module_invalid' })
  })

  test('shows an empty name as such, and calls the function with it only if there is no other', async () => {
    const two = await moduleFromText('(module (func (export "")) (func (export "b")))')
    expect(await host.run(two, { programName: 'x' })).toMatchObject({
      reason: 'no_such_function',
      error: 'the module exports no default function; it exports "" (its name is empty: rename it), b',
    })
    const one = await moduleFromText('(module (func (export "") (param i32) (result i32) (local.get 0)))')
    expect(await host.run(one, { programName: 'x', inputs: [4] })).toMatchObject({ results: [4] })
    expect(await host.run(one, { programName: 'x' })).toMatchObject({
      error: '"" (its name is empty: rename it) takes 1 input (i32), not 0',
    })
  })

  test('traps in its start function as in any other', async () => {
    const module = await moduleFromText('(module (func $s unreachable) (start $s) (func (export "run")))')
    expect(await host.run(module)).toMatchObject({ reason: 'trap' })
  })
})

describe('a runner process', () => {
  test('has no environment, no descriptors of the worker and, below root, its own user', async () => {
    const abort = new AbortController()
    const running = host.run('endless', {}, abort.signal)
    await until(() => host.pool.stats().runners.some(({ underWay }) => underWay > 0))
    for (const { pid } of host.pool.stats().runners) {
      const names = readFileSync(`/proc/${pid}/environ`, 'latin1')
        .split('\0')
        .map((entry) => entry.split('=')[0])
      expect(names.filter((name) => name !== '' && name !== 'PWD')).toEqual([])
      const uid = Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1])
      // Only the level `process` has no users of its own.
      if (process.getuid?.() === 0 && host.level !== 'process') expect(uid).toBeGreaterThanOrEqual(60_600)
    }
    abort.abort()
    expect(await running).toMatchObject({ state: 'stopped' })
  })
})
