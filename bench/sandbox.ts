/** The cost of the sandbox: core code against the same bytes in a bare Node, and a call of a warm component. */
import { writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import wabt from 'wabt'
import { newDataDir, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, milliseconds, printTable, repeat } from './statistics.ts'

const ROOT = join(import.meta.dirname, '..')
/** Recursion, as CPU load. */
const CORE = `(module (func $fib (export "fib") (param i32) (result i32)
  (if (result i32) (i32.lt_s (local.get 0) (i32.const 2)) (then (local.get 0))
    (else (i32.add (call $fib (i32.sub (local.get 0) (i32.const 1))) (call $fib (i32.sub (local.get 0) (i32.const 2))))))))`
const COMPONENT = `(component
  (core module $m (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1))))
  (core instance $i (instantiate $m))
  (func (export "add") (param "a" u32) (param "b" u32) (result u32) (canon lift (core func $i "add"))))`
const FIBONACCI = 35
const CORE_REPEATS = 7
const COMPONENT_REPEATS = 50
const TARGET_RATIO = 1.2
const TARGET_COMPONENT_MS = 1

async function newTask(
  platform: Platform,
  name: string,
  bytes: Uint8Array,
  inputs: readonly unknown[],
): Promise<() => Promise<number>> {
  const task = await platform.call<{ id: string }>('POST', '/tasks', { name, inputs })
  const file = join(platform.dataDir, `${name}.wasm`)
  writeFileSync(file, bytes)
  await platform.upload(task.id, relative(ROOT, file))
  return async () => {
    const run = await platform.call<{ duration_ms: number | null; state: number; error: string | null }>(
      'POST',
      `/tasks/${task.id}/invoke`,
      {},
    )
    if (run.duration_ms === null || run.error !== null)
      throw new Error(`${name} ended in state ${run.state}: ${run.error}`)
    return run.duration_ms
  }
}

function bareMs(bytes: Uint8Array): number {
  const instance = new WebAssembly.Instance(new WebAssembly.Module(bytes))
  const fibonacci = instance.exports['fib'] as (n: number) => unknown
  const began = performance.now()
  fibonacci(FIBONACCI)
  return performance.now() - began
}

export async function benchSandbox(): Promise<void> {
  const dataDir = newDataDir()
  try {
    await using platform = await startPlatform(dataDir)
    const bytes = new Uint8Array((await wabt()).parseWat('fib.wat', CORE).toBinary({}).buffer)
    const core = await newTask(platform, 'fib', bytes, [FIBONACCI])
    const component = await newTask(platform, 'add', await parse(COMPONENT), [40, 2])
    // In turns, so that other load of the machine affects both.
    const pairs = await repeat(1, CORE_REPEATS, async () => [await core(), bareMs(bytes)] as const)
    const inWorker = median(pairs.map(([ms]) => ms))
    const bare = median(pairs.map(([, ms]) => ms))
    const warm = median(await repeat(5, COMPONENT_REPEATS, component))
    printTable('The sandbox', [
      {
        name: `fib(${FIBONACCI}) in a worker`,
        figure: milliseconds(inWorker),
        ratio: `${(inWorker / bare).toFixed(2)} of a bare Node, ${milliseconds(bare)}`,
        target: `${TARGET_RATIO}`,
        isReached: inWorker / bare <= TARGET_RATIO,
      },
      {
        name: 'a call of a warm component',
        figure: milliseconds(warm),
        target: milliseconds(TARGET_COMPONENT_MS),
        isReached: warm < TARGET_COMPONENT_MS,
      },
    ])
  } finally {
    removeDataDir(dataDir)
  }
}
