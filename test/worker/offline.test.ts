/** Work without a manager: runs with `on_lost: wait` survive a restart of the worker, output and results come later (task-manager.md section 3). */
import { readdirSync, statSync } from 'node:fs'
import { open } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { OnLost, WireTaskState } from '#proto/index.ts'
import { Spool } from '#worker/spool/index.ts'
import { JoinedWorker } from './joined-worker.ts'
import { moduleFromText, until } from './pool.ts'

const WAIT = { onLost: OnLost.WAIT }

/** Waits for 300 ms. */
const napModule = () =>
  moduleFromText(`(module
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "run") (result i32)
      (i64.store (i32.const 24) (i64.const 300000000)) (i32.store (i32.const 16) (i32.const 1))
      (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))) (i32.const 42)))`)

/** Of the file of results that no manager has acknowledged. */
const spooledBytes = (folder: string): number =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name === 'spool')
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0)

/** No file can become longer, as on a full disk. */
async function refuseAppends(folder: string) {
  const handle = await open(join(folder, 'any'), 'w')
  await handle.close()
  const files = Object.getPrototypeOf(handle) as FileHandle
  return vi.spyOn(files, 'appendFile').mockRejectedValue(new Error('no space left on device'))
}

describe('a run with on_lost wait', () => {
  test('continues after a restart without network, and its result is delivered when the manager is back', async () => {
    await using joined = await JoinedWorker.start()
    joined.manager.assign(await napModule(), 'run-1', WAIT)
    await joined.manager.running('run-1')
    await joined.stopManager()
    await joined.stop()
    const joining = joined.begin()
    await joined.startManager()
    const worker = await joining
    const [hello] = joined.manager.heard('hello')
    const claims = [...(hello?.running ?? []).map(({ run }) => run), ...(hello?.spooled ?? [])]
    expect(claims.map((run) => run?.runId)).toEqual(['run-1'])
    expect(await joined.manager.result('run-1')).toMatchObject({ state: WireTaskState.COMPLETED, resultsJson: '[42]' })
    await worker.stop()
    // Acknowledged, it is never run again.
    await joined.join()
    expect(joined.manager.heard('hello').at(-1)).toMatchObject({ running: [], spooled: [] })
  })

  test('that ends while no manager is there is not run again by the next start', async () => {
    await using joined = await JoinedWorker.start()
    joined.manager.assign(await napModule(), 'run-1', WAIT)
    await joined.manager.running('run-1')
    const before = spooledBytes(joined.folder)
    await joined.stopManager()
    await until(() => spooledBytes(joined.folder) > before)
    await joined.startManager()
    expect(await joined.manager.result('run-1')).toMatchObject({ state: WireTaskState.COMPLETED, resultsJson: '[42]' })
    await joined.stop()
    await joined.join()
    expect(joined.manager.heard('hello').at(-1)).toMatchObject({ running: [], spooled: [] })
  })

  test('whose result the disk refuses is run again by the next start', async () => {
    await using joined = await JoinedWorker.start()
    joined.manager.assign(await napModule(), 'run-1', WAIT)
    await joined.manager.running('run-1')
    await joined.stopManager()
    const refusing = await refuseAppends(joined.folder)
    await until(() => refusing.mock.calls.length > 0)
    await joined.stop()
    refusing.mockRestore()
    const joining = joined.begin()
    await joined.startManager()
    const worker = await joining
    expect(await joined.manager.result('run-1')).toMatchObject({ state: WireTaskState.COMPLETED, resultsJson: '[42]' })
    await worker.stop()
    // Acknowledged, it is never run again.
    await joined.join()
    expect(joined.manager.heard('hello').at(-1)).toMatchObject({ running: [], spooled: [] })
  })

  test('whose result is acknowledged before the disk refuses it is not run again', async () => {
    await using joined = await JoinedWorker.start()
    const { add } = Spool.prototype
    const refusing = vi.spyOn(Spool.prototype, 'add').mockImplementation(async function (this: Spool, key, payload) {
      await add.call(this, key, payload)
      await until(() => this.find(key) === undefined)
      throw new Error('no space left on device')
    })
    joined.manager.assign(await napModule(), 'run-1', WAIT)
    expect(await joined.manager.result('run-1')).toMatchObject({ state: WireTaskState.COMPLETED })
    await joined.stop()
    expect(refusing.mock.settledResults).toMatchObject([{ type: 'rejected' }])
    refusing.mockRestore()
    await joined.join()
    expect(joined.manager.heard('hello').at(-1)).toMatchObject({ running: [], spooled: [] })
  })

  test('that is no longer needed is stopped when the manager says so', async () => {
    await using joined = await JoinedWorker.start()
    joined.manager.assign('endless', 'run-1', WAIT)
    await joined.manager.running('run-1')
    await joined.stopManager()
    await joined.stop()
    const joining = joined.begin()
    await joined.startManager()
    joined.manager.welcome = ({ running }) => ({ stop: running.flatMap(({ run }) => run ?? []) })
    const worker = await joining
    expect(joined.manager.heard('hello')[0]?.running).toHaveLength(1)
    await worker.stop()
    await joined.join()
    expect(joined.manager.heard('hello').at(-1)).toMatchObject({ running: [] })
  })

  test('is returned, not kept, when the worker shuts down normally', async () => {
    await using joined = await JoinedWorker.start()
    joined.manager.assign('endless', 'run-1', WAIT)
    await joined.manager.running('run-1')
    await joined.stop()
    await until(() => joined.manager.heard('reject').length > 0)
    expect(joined.manager.heard('reject')).toMatchObject([{ run: { runId: 'run-1' } }])
    await joined.join()
    expect(joined.manager.heard('hello').at(-1)).toMatchObject({ running: [] })
  })
})

describe('output', () => {
  /** Prints a line, waits, prints another. */
  const talker = () =>
    moduleFromText(`(module
      (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1) (data (i32.const 200) "one\\0atwo\\0a")
      (func (export "run") (param $ns i64)
        (i32.store (i32.const 0) (i32.const 200)) (i32.store (i32.const 4) (i32.const 4))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
        (i64.store (i32.const 40) (local.get $ns)) (i32.store (i32.const 32) (i32.const 1))
        (drop (call $poll (i32.const 16) (i32.const 80) (i32.const 1) (i32.const 128)))
        (i32.store (i32.const 0) (i32.const 204))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))`)

  const said = (joined: JoinedWorker) =>
    joined.manager.heard('logChunk').map(({ offset, data }) => [Number(offset), Buffer.from(data).toString()])

  test('of a long run arrives while it runs, each byte once', async () => {
    await using joined = await JoinedWorker.start()
    joined.manager.assign(await talker(), 'run-1', { inputsJson: '["60000000000"]' })
    await until(() => said(joined).length === 1)
    expect(said(joined)).toEqual([[0, 'one\n']])
    joined.manager.assign(await talker(), 'run-2', { inputsJson: '[100000]' })
    await joined.manager.result('run-2')
    const second = joined.manager.heard('logChunk').filter(({ run }) => run?.runId === 'run-2')
    expect(second.map(({ data }) => Buffer.from(data).toString()).join('')).toBe('one\ntwo\n')
  })

  test('without a manager is sent when the manager is back', async () => {
    await using joined = await JoinedWorker.start()
    // Silent for so long that the manager is gone before it goes on.
    joined.manager.assign(await talker(), 'run-1', { inputsJson: '["3000000000"]' })
    await until(() => said(joined).length === 1)
    await joined.stopManager()
    await joined.startManager()
    await joined.manager.result('run-1')
    expect(said(joined)).toEqual([[4, 'two\n']])
  })
})

test('a daemon has no timeout', async () => {
  await using joined = await JoinedWorker.start()
  const { manager } = joined
  const limits = { timeoutMs: 0n, memoryLimitBytes: 1048576n, maxOutputBytes: 1000n, maxResultBytes: 1000n }
  manager.assign('endless', 'run-1', { daemon: true, limits: limits as never })
  await manager.running('run-1')
  manager.assign('endless', 'run-2', { limits: { ...limits, timeoutMs: 100n } as never })
  expect(await manager.result('run-2')).toMatchObject({ state: WireTaskState.FAILED })
  expect(manager.results()).toHaveLength(1)
  manager.tell({ case: 'cancel', value: { runs: [{ runId: 'run-1', attempt: 1, fence: 1n }] } })
  expect(await manager.result('run-1')).toMatchObject({ state: WireTaskState.STOPPED })
})
