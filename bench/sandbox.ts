/** The cost of the sandbox: core code against the same bytes in a bare Node, and a call of a warm component. */
import { writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
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
/** Each constant makes another component, so that no worker has a transpiled form of it. */
const componentText = (constant: number) => `(component
  (core module $m (func (export "add") (param i32 i32) (result i32)
    (i32.add (i32.const ${constant}) (i32.add (local.get 0) (local.get 1)))))
  (core instance $i (instantiate $m))
  (func (export "add") (param "a" u32) (param "b" u32) (result u32) (canon lift (core func $i "add"))))`
const FIBONACCI = 35
const CORE_REPEATS = 7
const COMPONENT_REPEATS = 50
const FIRST_STARTS = 9
/** Long enough for a worker to start its next spare transpiler. */
const BETWEEN_FIRST_STARTS_MS = 3000
const TARGET_RATIO = 1.2
const TARGET_COMPONENT_MS = 1
const TARGET_FIRST_START_MS = 200

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

/** From the request to the result of the first run of a new component, in milliseconds. */
async function firstStartMs(platform: Platform, constant: number): Promise<number> {
  const first = await newTask(platform, 'add', await parse(componentText(constant)), [40, 2])
  await sleep(BETWEEN_FIRST_STARTS_MS)
  const began = performance.now()
  await first()
  return performance.now() - began
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
    const component = await newTask(platform, 'add', await parse(componentText(0)), [40, 2])
    // In turns, so that other load of the machine affects both.
    const pairs = await repeat(1, CORE_REPEATS, async () => [await core(), bareMs(bytes)] as const)
    const inWorker = median(pairs.map(([ms]) => ms))
    const bare = median(pairs.map(([, ms]) => ms))
    const warm = median(await repeat(5, COMPONENT_REPEATS, component))
    const firstStarts: number[] = []
    for (let constant = 1; constant <= FIRST_STARTS; constant += 1)
      firstStarts.push(await firstStartMs(platform, constant))
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
      {
        name: 'the first start of a small component, at a worker with a spare transpiler',
        figure: milliseconds(median(firstStarts)),
        ratio: `${milliseconds(Math.min(...firstStarts))} to ${milliseconds(Math.max(...firstStarts))}`,
        target: milliseconds(TARGET_FIRST_START_MS),
        isReached: median(firstStarts) <= TARGET_FIRST_START_MS,
      },
    ])
  } finally {
    removeDataDir(dataDir)
  }
}
