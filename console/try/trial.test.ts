import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { callFunction } from '#guests/calls/index.ts'
import type { CompiledModule } from '#guests/calls/index.ts'
import { exportsOf, runCalls } from './trial.ts'
import type { Request } from './trial.ts'

const ROOT = join(import.meta.dirname, '..', '..')

async function tried(example: string, request: Request) {
  const module = await WebAssembly.compile(readFileSync(join(ROOT, 'examples', example, `${example}.wasm`)))
  const description = { exports: exportsOf(request), imports: [] }
  const compiled: CompiledModule = { kind: 'core', module, description, needsHost: true, hasMemory: true }
  return runCalls(request, (call, host) => callFunction(compiled, call, host))
}

const COMMAND = { functionName: '_start', params: [], results: [], env: {}, records: [] }

test('a command gets arguments beyond ASCII, and each call has a new instance', async () => {
  const calls = [1, 2].map(() => ({ inputs: [], stdin: '' }))
  const { outcomes, stdout } = await tried('hello', { ...COMMAND, calls, args: ['hello', 'größe', '温度'] })
  expect(outcomes).toMatchObject([{ results: { exit_code: 0 } }, { results: { exit_code: 0 } }])
  expect(stdout).toBe('hello\ngröße\n温度\n'.repeat(2))
})

test('a publication is listed, a read returns records of the trial, and a wrong input is refused with the types', async () => {
  const [mean, alarm] = [
    { functionName: 'mean', params: ['f64', 'f64'], results: ['f64'] },
    { functionName: 'check', params: ['f64', 'f64'], results: ['i32'] },
  ]
  const given = { env: {}, args: ['x'], records: [{ n: 'a', t: 2, v: 30 }], calls: [{ inputs: [10, 3], stdin: '' }] }
  expect(await tried('moving-average', { ...given, ...mean })).toMatchObject({ reads: ['readings'] })
  const { publications } = await tried('threshold-alarm', { ...given, ...alarm })
  expect(publications).toMatchObject([{ topic: 'alarms' }])
  const wrong = await tried('threshold-alarm', { ...given, ...alarm, calls: [{ inputs: ['warm', 3], stdin: '' }] })
  expect(wrong.outcomes[0]?.error).toContain('check takes 2 inputs (f64, f64)')
})
