/**
 * Guests that attack: whatever they try, their own run ends with a reason, others in the same runner end as they should,
 * and the worker's heartbeats do not notice (task-manager.md section 4, faults that tests inject).
 */
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { leb128 } from '#core/bytes/index.ts'
import type { RunOutcome } from '#worker/runner/index.ts'
import { JoinedWorker } from './joined-worker.ts'
import { moduleFromText, startPool, until } from './pool.ts'
import type { RunOptions, TestPool } from './pool.ts'

const MIB = 1024 * 1024

let host: TestPool
beforeAll(async () => {
  // One runner for all, so that nobody is spared by living elsewhere; types that no limit bounds are let in.
  host = await startPool({ slots: 2, runners: 1, allowGc: true })
})
afterAll(() => host[Symbol.asyncDispose]())

/** No bomb is spared because the machine is busy: other suites use the same two cores. */
const TIMEOUT_MS = 60_000

/** As a manager does it: a run that comes back unharmed is given out again. */
async function runToEnd(module: Parameters<TestPool['run']>[0], request: RunOptions = {}): Promise<RunOutcome> {
  for (;;) {
    const outcome = await host.run(module, { timeoutMs: TIMEOUT_MS, ...request })
    if (outcome.state !== 'requeue') return outcome
  }
}

/** Runs the bomb beside a neighbour that must end well, and answers how the bomb ended. */
async function explode(bomb: Uint8Array, request: RunOptions = {}): Promise<RunOutcome> {
  const [outcome, neighbour] = await Promise.all([runToEnd(bomb, request), runToEnd('fibonacci', { inputs: [30] })])
  expect(neighbour, JSON.stringify(neighbour)).toMatchObject({ state: 'completed', results: [832040] })
  return outcome
}

describe('a bomb of garbage-collected arrays', () => {
  test.each([64, 8 * 1024, 512 * 1024, 8 * MIB])('of %d bytes each ends with oom', async (bytes) => {
    const bomb = await parse(`(module (type $a (array (mut i8)))
      (type $n (struct (field (ref null $n)) (field (ref $a)))) (global $all (mut (ref null $n)) (ref.null $n))
      (func (export "run") (loop $again
        (global.set $all (struct.new $n (global.get $all) (array.new $a (i32.const 1) (i32.const ${bytes})))) (br $again))))`)
    expect(await explode(bomb)).toMatchObject({ state: 'failed', reason: 'oom' })
  })

  test('is refused if they were not allowed', async () => {
    await using strict = await startPool({ slots: 1, runners: 1 })
    const bomb = await parse('(module (type $a (array i8)) (func (export "run")))')
    expect(await strict.run(bomb)).toMatchObject({ reason: 'module_invalid' })
  })
})

describe('memory', () => {
  test.each([
    ['fifty memories', `(module ${'(memory 1)'.repeat(50)} (func (export "run")))`, '50 memories'],
    ['a shared memory', '(module (memory 1 2 shared) (func (export "run")))', 'shared memory'],
    ['an imported memory', '(module (import "env" "memory" (memory 1)) (func (export "run")))', 'env.memory'],
    ['a 64-bit memory beyond the limit', '(module (memory i64 5000) (func (export "run")))', '5000 pages'],
  ])('%s is refused', async (_, text, sentence) => {
    const outcome = await explode(await parse(text))
    expect(outcome).toMatchObject({ reason: 'module_invalid', error: expect.stringContaining(sentence) as string })
  })

  test('of 64 bits is limited like any other', async () => {
    const eater = await parse(`(module (memory (export "memory") i64 1) (func (export "run")
      (loop $again (if (i64.eq (memory.grow (i64.const 16)) (i64.const -1)) (then unreachable)) (br $again))))`)
    expect(await explode(eater, { memoryLimitBytes: 16 * MIB })).toMatchObject({
      reason: 'trap',
      error: expect.stringMatching(/ of at most 16777216 bytes$/) as string,
    })
  })

  test('that is repeatedly filled to its limit does not accumulate', async () => {
    const eater = await moduleFromText(`(module (memory (export "memory") 1 1024) (func (export "run")
      (drop (memory.grow (i32.const 1023))) (memory.fill (i32.const 0) (i32.const 1) (i32.const 67108864))))`)
    for (let time = 0; time < 10; time++) expect(await runToEnd(eater)).toMatchObject({ state: 'completed' })
  })
})

/** A module of so many functions, each with a body of so many bytes of `nop`. */
function moduleOfBodies(functions: number, bodyBytes: number): Uint8Array {
  const section = (id: number, ...parts: Uint8Array[]) => {
    const content = Buffer.concat(parts)
    return Buffer.concat([Uint8Array.from([id, ...leb128(content.length)]), content])
  }
  const vector = (count: number) => Uint8Array.from(leb128(count))
  const body = new Uint8Array(bodyBytes).fill(0x01)
  body[0] = 0
  body[bodyBytes - 1] = 0x0b
  const sized = Buffer.concat([vector(bodyBytes), body])
  return Buffer.concat([
    Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0),
    section(1, Uint8Array.of(1, 0x60, 0, 0)),
    section(3, vector(functions), new Uint8Array(functions)),
    section(7, Uint8Array.of(1, 3, 0x72, 0x75, 0x6e, 0, 0)),
    section(10, vector(functions), ...Array.from({ length: functions }, () => sized)),
  ])
}

describe('a large module', () => {
  test('of one function is refused before anything compiles it', async () => {
    const outcome = await explode(moduleOfBodies(1, 63 * MIB))
    expect(outcome).toMatchObject({
      reason: 'module_invalid',
      error: expect.stringContaining('longest function body') as string,
    })
  })

  test('of nearly 64 MiB within all bounds runs', async () => {
    expect(await explode(moduleOfBodies(63, MIB - 1))).toMatchObject({ state: 'completed', results: [] })
  })

  test('beyond 64 MiB is refused', async () => {
    const outcome = await explode(moduleOfBodies(65, MIB))
    expect(outcome).toMatchObject({ error: expect.stringContaining('at most 67108864 are accepted') as string })
  })

  test('of a hundred thousand functions runs, and with one more it does not', async () => {
    expect(await explode(moduleOfBodies(100_000, 20))).toMatchObject({ state: 'completed' })
    expect(await explode(moduleOfBodies(100_001, 20))).toMatchObject({ reason: 'module_invalid' })
  })
})

describe('a guest', () => {
  test('that floods stdout has its output cut at the limit and ends normally', async () => {
    const flood = await moduleFromText(`(module
      (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 2)
      (func (export "run") (local $left i32) (local.set $left (i32.const 20000))
        (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 65536))
        (loop $again
          (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
          (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))`)
    const outcome = await explode(flood)
    expect(outcome, JSON.stringify({ ...outcome, stdout: undefined })).toMatchObject({
      state: 'completed',
      isOutputTruncated: true,
    })
    const stdout = 'stdout' in outcome ? outcome.stdout : undefined
    expect(JSON.stringify(stdout).length).toBeLessThan(MIB * 1.5)
  })

  test('that recurses forever ends with trap', async () => {
    const deep = await moduleFromText('(module (func $run (export "run") (call $run)))')
    expect(await explode(deep)).toMatchObject({ reason: 'trap', error: 'call stack exhausted' })
  })

  test('of garbage bytes, of none, and of a header only ends with a reason', async () => {
    for (const bytes of [new Uint8Array(), Uint8Array.of(1, 2, 3), Buffer.from('<html>'.repeat(1000))]) {
      await expect(host.run(bytes)).rejects.toMatchObject({ kind: 'malformed' })
    }
    const header = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0)
    expect(await explode(header)).toMatchObject({ reason: 'no_such_function' })
    expect(await explode(Buffer.concat([header, Buffer.alloc(1000, 7)]))).toMatchObject({ reason: 'module_invalid' })
  })

  test('returns NaN and infinities by their names, and accepts none', async () => {
    const module = await moduleFromText(`(module (func (export "run") (param f64) (result f64 f64 f32)
      (f64.div (f64.const 0) (f64.const 0)) (f64.div (local.get 0) (f64.const 0)) (f32.const -inf)))`)
    expect(await explode(module, { inputs: [1] })).toMatchObject({ results: ['NaN', 'Infinity', '-Infinity'] })
    expect(await explode(module, { inputs: ['NaN'] })).toMatchObject({ reason: 'guest_error' })
  })
})

test('heartbeats continue and no lease is lost while bombs of every kind run', async () => {
  await using joined = await JoinedWorker.start({ SKEIN_WORKER_ALLOW_GC: 'true' })
  const { manager } = joined
  // Manager, worker and test are one process here: three intervals of silence are what it may stand still for.
  manager.leaseTtlMs = 20_000
  manager.heartbeatIntervalMs = 2_000
  await joined.stop()
  await joined.join({ SKEIN_WORKER_ALLOW_GC: 'true' })
  const limits = {
    timeoutMs: 2_000n,
    memoryLimitBytes: 64n * 1024n * 1024n,
    maxOutputBytes: 1000n,
    maxResultBytes: 1000n,
  }
  const bombs = [
    await parse(`(module (type $a (array (mut i8))) (type $n (struct (field (ref null $n)) (field (ref $a))))
      (global $all (mut (ref null $n)) (ref.null $n)) (func (export "run") (loop $again
        (global.set $all (struct.new $n (global.get $all) (array.new $a (i32.const 1) (i32.const 8192)))) (br $again))))`),
    await moduleFromText('(module (func (export "run") (loop $again (br $again))))'),
    await moduleFromText(`(module (memory 1) (func (export "run")
      (loop $again (drop (memory.grow (i32.const 1))) (br $again))))`),
    moduleOfBodies(63, MIB - 1),
  ]
  for (const [index, bomb] of bombs.entries()) manager.assign(bomb, `bomb-${index}`, { limits: limits as never })
  const ended = () => new Set([...manager.results(), ...manager.heard('reject')].map(({ run }) => run?.runId))
  await until(() => ended().size === bombs.length, 60_000)
  const beats = manager.heard('heartbeat').length
  await until(() => manager.heard('heartbeat').length >= beats + 2)
  // An expired lease would have ended the session: the manager would see it in Hello.
  expect(manager.sessions).toBe(2)
})
