/** `skein modules try`: a module runs on this machine in the runner of a worker, without a platform. */
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { coreCounter } from '../tasks/counter.ts'
import { componentFromText, moduleFromText } from '../worker/pool.ts'
import { createHome } from './skein.ts'
import type { Home, RunOptions } from './skein.ts'

const EXAMPLES = join(import.meta.dirname, '..', '..', 'examples')
const example = (name: string) => join(EXAMPLES, name, `${name}.wasm`)

type Run = {
  inputs: unknown[]
  stdin?: string
  state: string
  reason?: string
  error?: string
  frames?: string[]
  results: unknown
  stdout: string
  memory_bytes: number | null
  duration_ms: number
  publications: { topic: string; payload: unknown; refused?: string }[]
  publications_total: number
}
type Round = {
  module: { kind: string; bytes: number; exports: { name: string }[]; imports: { name: string }[] }
  error?: string
  memory_limit: number
  omitted_runs: number
  runs: Run[]
}

let home: Home
beforeAll(() => {
  // Nothing answers at this address: the command needs no platform.
  home = createHome({ SKEIN_URL: 'http://127.0.0.1:1', SKEIN_MANAGER_URL: 'http://127.0.0.1:1' })
})
afterAll(() => home[Symbol.dispose]())

function fileWith(name: string, content: string | Uint8Array): string {
  const path = join(home.folder, name)
  writeFileSync(path, content)
  return path
}

async function tryModule(file: string, args: string[] = [], options: RunOptions = {}) {
  const { code, stdout, stderr } = await home.run(['modules', 'try', file, ...args], options)
  const rounds = stdout
    .trim()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Round)
  return { code, stderr, rounds, round: rounds[0] as Round, run: rounds[0]?.runs?.[0] as Run }
}

describe('a module without a message', () => {
  it('shows result, memory, time, exports and imports of a core function', async () => {
    const { code, round, run } = await tryModule(example('add'), ['--inputs', '1,2'])
    expect(round.module).toMatchObject({ kind: 'core', bytes: 41, exports: [{ name: 'add' }], imports: [] })
    expect(run).toMatchObject({ inputs: [1, 2], state: 'completed', results: [3], memory_bytes: 0, publications: [] })
    expect(run.duration_ms).toBeGreaterThanOrEqual(0)
    expect(code).toBe(0)
  })

  it('gives a command its arguments, environment and standard input', async () => {
    const file = fileWith(
      'echo.wasm',
      await moduleFromText(`(module
        (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ (param i32 i32) (result i32)))
        (memory (export "memory") 1)
        (func (export "_start")
          (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 100))
          (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
          (i32.store (i32.const 4) (i32.load (i32.const 8)))
          (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))`),
    )
    const { run } = await tryModule(file, ['--stdin', 'Grüße'])
    expect(run).toMatchObject({ stdout: 'Grüße', results: { exit_code: 0, stdout: 'Grüße' }, memory_bytes: 65_536 })
    const hello = await tryModule(example('hello'), ['--cli-args', 'one,two', '--env', 'A=b'])
    expect(hello.run.results).toMatchObject({ stdout: 'hello\none\ntwo\n' })
  })

  it('runs a component', async () => {
    const file = fileWith(
      'double.wasm',
      await componentFromText(`(component
        (core module $m (func (export "f") (param i32) (result i32) (i32.mul (local.get 0) (i32.const 2))))
        (core instance $i (instantiate $m))
        (func (export "double") (param "a" s32) (result s32) (canon lift (core func $i "f"))))`),
    )
    const { round, run } = await tryModule(file, ['--function', 'double', '--inputs', '[21]'])
    expect(round.module.kind).toBe('component')
    expect(run).toMatchObject({ state: 'completed', results: 42 })
  })

  it('fails with the reason that a worker would report', async () => {
    const [endless, full, unknown, wrong] = await Promise.all([
      tryModule(example('endless'), ['--timeout', '500ms']),
      tryModule(example('memory-eater'), ['--memory', '2MiB']),
      tryModule(example('add'), ['--function', 'sub']),
      tryModule(example('add'), ['--inputs', '1']),
    ])
    expect(endless).toMatchObject({ code: 1, run: { state: 'failed', reason: 'timeout', memory_bytes: null } })
    expect(full).toMatchObject({ code: 1, run: { memory_bytes: 2 * 1024 * 1024, frames: ['function 0'] } })
    expect(unknown.run.error).toBe('the module exports no function "sub"; it exports add')
    expect(wrong.run.error).toBe('add takes 2 inputs (i32, i32), not 1')
  })

  it('refuses a module that an upload refuses, with the same message', async () => {
    const { code, round } = await tryModule(example('table-bomb'))
    expect(code).toBe(1)
    expect(round.error).toBe('the tables together: 320000000 entries, at most 1000000 are accepted')
    const missing = await tryModule(join(home.folder, 'missing.wasm'))
    expect(missing.round.error).toMatch(/^cannot read .*missing\.wasm: ENOENT/)
    const wrong = await home.run(['modules', 'try', example('add'), '--memory', 'much'])
    expect(wrong).toMatchObject({ code: 1, stderr: expect.stringContaining('--memory must be a size') as string })
  })

  it('requires no more than its own folder, and leaves nothing behind', async () => {
    const { readdirSync, mkdtempSync } = await import('node:fs')
    const folder = mkdtempSync(join(home.folder, 'temporary-'))
    await tryModule(example('add'), ['--inputs', '1,2'], { environment: { TMPDIR: folder } })
    expect(readdirSync(folder)).toEqual([])
  })
})

describe('a message', () => {
  const pack = [
    { bn: 'pump/', bt: 1_700_000_000, n: 'temperature', u: 'Cel', v: 81.5 },
    { n: 'door', t: 1, vb: true },
    { n: 'note', vs: 'x' },
  ]

  it('calls a function of numbers once for each record, and lists what it publishes', async () => {
    const message = fileWith('pack.json', JSON.stringify(pack))
    const { code, round } = await tryModule(example('threshold-alarm'), ['--message', message])
    expect(round.runs).toMatchObject([
      {
        inputs: [81.5, 1_700_000_000],
        results: [1],
        publications: [{ topic: 'alarms', payload: [{ n: 'alarm', vb: true }, { v: 81.5 }] }],
        publications_total: 1,
      },
      { inputs: [1, 1_700_000_001], results: [0] },
      { state: 'dropped', error: 'the record has no number, and the function takes numbers' },
    ])
    expect(code).toBe(0)
  })

  it('is the argument of a component and the standard input of a command', async () => {
    const message = fileWith('message.json', JSON.stringify({ subtopic: 'raw', records: pack.slice(0, 1) }))
    const resolved = {
      channel_id: '00000000-0000-0000-0000-000000000000',
      subtopic: 'raw',
      publisher: '00000000-0000-0000-0000-000000000000',
      protocol: 'http',
      records: [{ n: 'pump/temperature', u: 'Cel', t: 1_700_000_000, v: 81.5 }],
    }
    const command = await tryModule(example('hello'), ['--message', message])
    expect(command.run.inputs).toEqual([])
    expect(JSON.parse(command.run.stdin as string)).toEqual(resolved)
    const component = await tryModule(example('unit-conversion'), ['--message', message])
    expect(component.run.state).toBe('completed')
    expect(JSON.parse(component.run.inputs[0] as string)).toEqual(resolved)
  })

  it('is in the result when the guest reads its channel', async () => {
    const message = fileWith(
      'values.json',
      JSON.stringify([
        { n: 'a', v: 4 },
        { n: 'b', v: -2 },
      ]),
    )
    const { round } = await tryModule(example('moving-average'), ['--message', message])
    expect(round.runs.map(({ results }) => results)).toEqual([[1], [1]])
  })

  it('that is not a pack is refused', async () => {
    const { code, round } = await tryModule(example('add'), ['--message', fileWith('bad.json', '[{"v": "x"}]')])
    expect(code).toBe(1)
    expect(round.error).toContain('must be a number')
  })

  it('that the platform would not store is marked, and the guest gets the error that it would get there', async () => {
    const text = (payload: string, at: number) => `(data (i32.const ${at}) "${payload.replaceAll('"', '\\"')}")`
    const [noPack, noRecord] = ['{"n":"a"}', '[{"n":"a","v":"b"}]']
    const file = fileWith(
      'publisher.wasm',
      await moduleFromText(`(module
        (import "skein" "publish" (func $publish (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        ${text(noPack, 0)} ${text(noRecord, 64)}
        (func (export "run") (result i32 i32)
          (call $publish (i32.const 0) (i32.const 0) (i32.const 0) (i32.const ${noPack.length}))
          (call $publish (i32.const 0) (i32.const 0) (i32.const 64) (i32.const ${noRecord.length}))))`),
    )
    const { run } = await tryModule(file)
    expect(run.results).toEqual([-1, 0])
    expect(run.publications).toMatchObject([
      { payload: { n: 'a' }, refused: 'the payload must be a SenML pack: a JSON array of records' },
      { refused: expect.stringContaining('must be a number') as string },
    ])
  })
})

it('--watch runs the module again when its file changes, and ends with Ctrl-C', async () => {
  const file = join(home.folder, 'watched.wasm')
  copyFileSync(example('fibonacci'), file)
  let changes = 0
  const { code, rounds, stderr } = await tryModule(file, ['--inputs', '7', '--watch'], {
    interruptWhen(stdout) {
      const lines = stdout.split('\n').length - 1
      if (lines === 1 && changes === 0) {
        changes = 1
        writeFileSync(file, 'no module')
      }
      if (lines === 2 && changes === 1) {
        changes = 2
        writeFileSync(file, readFileSync(example('fibonacci')))
      }
      return lines === 3
    },
  })
  expect(rounds.map(({ runs, error }) => runs?.[0]?.results ?? error)).toEqual([
    [13],
    expect.stringContaining('not a WebAssembly') as string,
    [13],
  ])
  expect(stderr).toContain('waiting for a change of')
  expect(code).toBe(0)
})

it('a terminal shows lines instead of JSON', async () => {
  const { stdout } = await home.runOnTerminal(['modules', 'try', example('fibonacci'), '--inputs', '30'])
  for (const text of ['fibonacci.wasm: core, 96 bytes', 'fibonacci(i32) -> i64', '[832040]', 'of at most 64.0 MiB'])
    expect(stdout).toContain(text)
})

it('state is in memory, which is said, and begins empty', async () => {
  const counter = fileWith('counter.wasm', await coreCounter())
  const { round, run } = await tryModule(counter, ['--function', 'add', '--inputs', '3'])
  expect(round.module).toMatchObject({ uses_state: true })
  expect(run).toMatchObject({ results: [3], kept: [{ bucket: 'task', key: 'n', value: 'AwAAAA==' }] })
  // Another trial begins without.
  expect((await tryModule(counter, ['--function', 'add', '--inputs', '3'])).run.results).toEqual([3])
  const { stdout } = await home.runOnTerminal(['modules', 'try', counter, '--function', 'add', '--inputs', '3'])
  expect(stdout).toContain('in memory: it begins empty, its runs share it, and nothing is stored')
  expect(stdout).toContain('task: n =')
  expect((await tryModule(example('add'), ['--inputs', '1,2'])).round.module).toMatchObject({ uses_state: false })
})
