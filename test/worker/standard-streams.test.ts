/** Standard streams, clocks and polls of WASI preview 1. The expected values are those of wasmtime 50.0.1, except where a test says so. */
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { moduleFromText, startPool } from './pool.ts'
import type { TestPool } from './pool.ts'

let host: TestPool
beforeAll(async () => {
  host = await startPool({ slots: 2, runners: 1 })
})
afterAll(() => host[Symbol.asyncDispose]())

/** Errors of the witx. */
const [SUCCESS, EBADF, EINVAL] = [0, 8, 28]
/** File types of the witx. */
const [UNKNOWN, CHARACTER_DEVICE] = [0, 2]

const imported = (name: string, params: string) =>
  `(import "wasi_snapshot_preview1" "${name}" (func $${name} (param ${params}) (result i32)))`

const STATUS = (imports = '') => `(module
  ${imported('fd_fdstat_get', 'i32 i32')} ${imported('fd_filestat_get', 'i32 i32')} ${imports}
  (memory (export "memory") 1)
  (data (i32.const 96) "${'\\ff'.repeat(160)}")
  (func (export "fdstat") (param $fd i32) (result i32 i32 i64 i64)
    (call $fd_fdstat_get (local.get $fd) (i32.const 96))
    (i32.load8_u (i32.const 96)) (i64.load (i32.const 104)) (i64.load (i32.const 112)))
  (func (export "filestat") (param $fd i32) (result i32 i64 i64 i64 i64 i64 i64 i64 i64 i64)
    (call $fd_filestat_get (local.get $fd) (i32.const 128))
    ${[0, 8, 16, 24, 32, 40, 48, 56, 64].map((at) => `(i64.load (i32.const ${128 + at}))`).join(' ')}))`

describe('a standard stream', () => {
  test('is no terminal, and has one right', async () => {
    const module = await moduleFromText(STATUS())
    const statuses = [0, 1, 2, 3].map(async (fd) => {
      const outcome = await host.run(module, { functionName: 'fdstat', inputs: [fd] })
      return outcome.state === 'completed' ? outcome.results : outcome
    })
    const unchanged = [255, -1, -1]
    expect(await Promise.all(statuses)).toEqual([
      [SUCCESS, UNKNOWN, 2, 2],
      [SUCCESS, UNKNOWN, 64, 64],
      [SUCCESS, UNKNOWN, 64, 64],
      [EBADF, ...unchanged],
    ])
  })

  test('has a status of 64 bytes without size and times', async () => {
    const module = await moduleFromText(STATUS())
    for (const fd of [0, 1, 2]) {
      const outcome = await host.run(module, { functionName: 'filestat', inputs: [fd] })
      expect(outcome, `descriptor ${fd}`).toMatchObject({ results: [SUCCESS, 0, 0, 0, 0, 0, 0, 0, 0, -1] })
    }
    const outcome = await host.run(module, { functionName: 'filestat', inputs: [3] })
    expect(outcome).toMatchObject({ results: [EBADF, -1, -1, -1, -1, -1, -1, -1, -1, -1] })
  })

  test('is a terminal for the standard output of C alone, which then writes every line: other than in wasmtime', async () => {
    const module = await moduleFromText(
      STATUS(
        `${imported('fd_close', 'i32')} ${imported('fd_seek', 'i32 i64 i32 i32')} ${imported('fd_write', 'i32 i32 i32 i32')}`,
      ),
    )
    for (const [fd, type] of [UNKNOWN, CHARACTER_DEVICE, UNKNOWN].entries()) {
      const outcome = await host.run(module, { functionName: 'fdstat', inputs: [fd] })
      expect(outcome, `descriptor ${fd}`).toMatchObject({
        results: [SUCCESS, type, fd === 0 ? 2 : 64, fd === 0 ? 2 : 64],
      })
    }
  })

  test('keeps every line that a C program wrote before it trapped', async () => {
    const lines = readFileSync(new URL('fixtures/wasi/lines.wasm', import.meta.url))
    const outcome = await host.run(lines)
    expect(outcome).toMatchObject({ state: 'failed', reason: 'trap', stdout: 'no terminal\nsecond\nthird\n' })
  })
})

test.each(['descriptors', 'terminals'])('%s writes the same bytes as in wasmtime', async (name) => {
  const file = (suffix: string) => readFileSync(new URL(`fixtures/wasi/${name}.${suffix}`, import.meta.url))
  const outcome = await host.run(file('wasm'), {
    programName: name,
    args: ['one', 'größe 温度'],
    env: { GREETING: 'größe' },
    stdin: 'in\nput\n',
  })
  expect(outcome).toMatchObject({
    reason: 'guest_error',
    results: {
      exit_code: 3,
      stdout: file('stdout').toString(),
      stderr: name === 'descriptors' ? 'to stderr\n' : 'false\n',
    },
  })
})

test('a closed stream has no status and is not polled', async () => {
  const module = await moduleFromText(`(module
    ${imported('fd_close', 'i32')} ${imported('fd_filestat_get', 'i32 i32')} ${imported('sock_shutdown', 'i32 i32')}
    (memory (export "memory") 1)
    (func (export "run") (result i32 i32 i32) (call $fd_close (i32.const 0))
      (call $fd_filestat_get (i32.const 0) (i32.const 0)) (call $sock_shutdown (i32.const 0) (i32.const 1))))`)
  expect(await host.run(module)).toMatchObject({ results: [SUCCESS, EBADF, EBADF] })
})

test('a clock of the processor does not exist, and the others advance', async () => {
  const module = await moduleFromText(`(module
    ${imported('clock_time_get', 'i32 i64 i32')} ${imported('clock_res_get', 'i32 i32')}
    (memory (export "memory") 1)
    (func (export "run") (param $clock i32) (result i32 i32 i32 i32)
      (call $clock_time_get (local.get $clock) (i64.const 1) (i32.const 0))
      (call $clock_res_get (local.get $clock) (i32.const 8))
      (i64.ne (i64.load (i32.const 0)) (i64.const 0)) (i64.ne (i64.load (i32.const 8)) (i64.const 0))))`)
  for (const clock of [0, 1]) {
    expect(await host.run(module, { inputs: [clock] })).toMatchObject({ results: [SUCCESS, SUCCESS, 1, 1] })
  }
  for (const clock of [2, 3]) {
    expect(await host.run(module, { inputs: [clock] })).toMatchObject({ results: [EBADF, EBADF, 0, 0] })
  }
  // Wasmtime traps here.
  expect(await host.run(module, { inputs: [4] })).toMatchObject({ results: [EINVAL, EINVAL, 0, 0] })
})

describe('a poll', () => {
  const CLOCK = 0
  const [READ, WRITE] = [1, 2]
  /** Polls `type` of `target`, and 20 ms of the monotonic clock if `isTimed`: error, events, type of the first and its bytes. */
  const poll = async (type: number, target: number, isTimed = false) => {
    const module = await moduleFromText(`(module
      ${imported('poll_oneoff', 'i32 i32 i32 i32')}
      (memory (export "memory") 1)
      (data (i32.const 200) "\\63")
      (func (export "run") (param $type i32) (param $target i32) (param $count i32) (result i32 i32 i32 i64)
        (i32.store8 (i32.const 8) (local.get $type)) (i32.store (i32.const 16) (local.get $target))
        (i32.store (i32.const 64) (i32.const 1)) (i64.store (i32.const 72) (i64.const 20000000))
        (call $poll_oneoff (i32.const 0) (i32.const 256) (local.get $count) (i32.const 200))
        (i32.load (i32.const 200)) (i32.load8_u (i32.const 266)) (i64.load (i32.const 272))))`)
    const outcome = await host.run(module, { inputs: [type, target, isTimed ? 2 : 1] })
    return outcome.state === 'completed' ? outcome.results : outcome
  }

  test('reports a stream that can be read or written', async () => {
    expect(await poll(READ, 0)).toEqual([SUCCESS, 1, READ, 1])
    expect(await poll(WRITE, 1)).toEqual([SUCCESS, 1, WRITE, 1])
    expect(await poll(WRITE, 2, true)).toEqual([SUCCESS, 1, WRITE, 1])
  })

  test.each([
    ['an unknown descriptor', READ, 7, EBADF],
    ['an unknown descriptor to write', WRITE, 7, EBADF],
    ['standard input to write', WRITE, 0, EBADF],
    ['standard output to read', READ, 1, EBADF],
    ['a clock of the processor', CLOCK, 2, EINVAL],
  ])('fails for %s, and reports no event', async (_, type, target, error) => {
    expect(await poll(type, target)).toEqual([error, 0x63, 0, 0])
    expect(await poll(type, target, true)).toEqual([error, 0x63, 0, 0])
  })
})

describe('a host function without a memory to use', () => {
  test('names the export that it lacks', async () => {
    const module = await moduleFromText(`(module ${imported('fd_write', 'i32 i32 i32 i32')}
      (memory (export "other") 1)
      (func (export "run") (result i32) (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))`)
    expect(await host.run(module)).toMatchObject({
      state: 'failed',
      reason: 'module_invalid',
      error: expect.stringMatching(/exports no memory named "memory".*export its memory by this name/) as string,
    })
  })

  test('names the start function that called it', async () => {
    const module = await moduleFromText(`(module ${imported('clock_time_get', 'i32 i64 i32')}
      (memory (export "memory") 1)
      (func $start (drop (call $clock_time_get (i32.const 0) (i64.const 1) (i32.const 0)))) (start $start)
      (func (export "run")))`)
    expect(await host.run(module)).toMatchObject({
      state: 'failed',
      reason: 'module_invalid',
      error: expect.stringMatching(/start function.*call it in _initialize or _start instead/) as string,
    })
  })
})

test('a command without imports has an exit code and no output', async () => {
  const module = await moduleFromText('(module (func (export "_start")))')
  expect(await host.run(module)).toMatchObject({
    state: 'completed',
    results: { exit_code: 0, stdout: '', stderr: '' },
  })
})
