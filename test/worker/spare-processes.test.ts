/** Spare processes for components (decision 0026): each gets one component; they end when unused, and with the worker. */
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { establishIsolation } from '#worker/isolation/index.ts'
import type { Isolation } from '#worker/isolation/index.ts'
import { stageTranspilerCode } from '#worker/transpile/index.ts'
import { SingleUseProcesses } from '../../worker/transpile/single-use-processes.ts'
import { TRANSPILER_CODE, transpile } from '../../worker/transpile/transpile.ts'
import { componentFromText, until } from './pool.ts'

const { entries } = TRANSPILER_CODE
let folder: string
let isolation: Isolation
let codeFolder: string
let path: string
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'skein-spares-'))
  chmodSync(folder, 0o755)
  isolation = await establishIsolation({ required: 'process', folder })
  codeFolder = await stageTranspilerCode(join(folder, 'transpiler'))
  path = join(folder, 'component.wasm')
  const component = await componentFromText(`(component
    (core module $m (func (export "f") (result i32) (i32.const 7)))
    (core instance $i (instantiate $m))
    (func (export "run") (result u32) (canon lift (core func $i "f"))))`)
  writeFileSync(path, component)
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

async function transpiled(processes: SingleUseProcesses): Promise<string[]> {
  let names: string[] = []
  const keep = (files: readonly (readonly [string, Uint8Array])[]) => {
    names = files.map(([name]) => name)
    return Promise.resolve()
  }
  await transpile({ processes, path, keep }, new AbortController().signal)
  return names
}

const isAlive = (pid: number) => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

test('spares exist after the first component, and each is used once', async () => {
  const processes = new SingleUseProcesses({ isolation, codeFolder, entries, spareDelayMs: 0 })
  try {
    expect(processes.sparePids).toEqual([])
    expect(await transpiled(processes)).toEqual(['component.js', 'component.core.wasm'])
    await until(() => processes.sparePids.length === entries.length)
    const first = processes.sparePids
    expect(await transpiled(processes)).toEqual(['component.js', 'component.core.wasm'])
    await until(() => processes.sparePids.length === entries.length && !first.some(isAlive))
    expect(processes.sparePids.some((pid) => first.includes(pid))).toBe(false)
  } finally {
    await processes.close()
  }
})

test('spares that are ended at any moment of their start end', async () => {
  // bubblewrap needs some milliseconds until it has released the process that becomes Node.
  for (let delayMicroseconds = 0; delayMicroseconds < 20_000; delayMicroseconds += 250) {
    const processes = new SingleUseProcesses({ isolation, codeFolder, entries })
    processes.warm()
    const until = process.hrtime.bigint() + BigInt(delayMicroseconds) * 1_000n
    while (process.hrtime.bigint() < until);
    await processes.close()
  }
})

test('a spare that was killed while it waited costs no component', async () => {
  const processes = new SingleUseProcesses({ isolation, codeFolder, entries })
  try {
    processes.warm()
    await until(() => processes.sparePids.length === entries.length)
    for (const pid of processes.sparePids) process.kill(pid, 'SIGKILL')
    expect(await transpiled(processes)).toEqual(['component.js', 'component.core.wasm'])
  } finally {
    await processes.close()
  }
})

test('spares end when no component comes, and with the worker', async () => {
  const processes = new SingleUseProcesses({ isolation, codeFolder, entries, spareIdleMs: 500 })
  processes.warm()
  await until(() => processes.sparePids.length === entries.length)
  const idle = processes.sparePids
  await until(() => processes.sparePids.length === 0 && !idle.some(isAlive))
  processes.warm()
  await until(() => processes.sparePids.length === entries.length)
  const last = processes.sparePids
  await processes.close()
  await until(() => !last.some(isAlive))
  processes.warm()
  expect(processes.sparePids).toEqual([])
})

test.runIf(process.getuid?.() === 0)('processes have users of their own', async () => {
  const processes = new SingleUseProcesses({ isolation, codeFolder, entries })
  try {
    processes.warm()
    await until(() => processes.sparePids.length === entries.length)
    const users = processes.sparePids.map(
      (pid) => /^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1],
    )
    expect(new Set(users).size).toBe(entries.length)
    expect(users).not.toContain('0')
  } finally {
    await processes.close()
  }
})
