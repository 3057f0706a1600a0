import type { ChildProcess } from 'node:child_process'
import { EventEmitter } from 'node:events'
import { expect, test, vi } from 'vitest'
import { createLogger } from '#core/logging/index.ts'

/** A fake worker process: sends what the test specifies, and exits when it is killed. */
class WorkerProcess extends EventEmitter {
  send = vi.fn()
  kill(signal: string): void {
    this.emit('exit', null, signal)
  }
}
const child = new WorkerProcess()
vi.mock('node:child_process', () => ({ fork: () => child as unknown as ChildProcess }))
const { launchLocalWorker } = await import('./local-worker.ts')

test('the isolation of the worker is awaited, because the manager learns of the join first', async () => {
  const worker = launchLocalWorker({ environment: {}, logger: createLogger({ name: 'test', level: 'fatal' }) })
  let told: string | undefined
  const isolation = worker.isolation().then((level) => (told = level))
  await new Promise((resolve) => setImmediate(resolve))
  expect(told).toBeUndefined()
  child.emit('message', { isolation: 'process' })
  expect(await isolation).toBe('process')
  await worker.stop()
})

test('a worker that is stopped before it joined reports no isolation', async () => {
  const worker = launchLocalWorker({ environment: {}, logger: createLogger({ name: 'test', level: 'fatal' }) })
  const isolation = worker.isolation()
  await worker.stop()
  expect(await isolation).toBeUndefined()
})
