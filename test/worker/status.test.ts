/** `npm run worker -- status`: what a worker says about itself on its own machine, with a manager and without. */
import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { createServer } from 'node:net'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { OnLost } from '#proto/index.ts'
import { readStatus, renderStatus } from '#worker/index.ts'
import { statusPath } from '#worker/status/index.ts'
import { health } from '../harness/health.ts'
import { JoinedWorker } from './joined-worker.ts'

test('the status contains the runs, the unsent results and the rest of the lease', async () => {
  await using joined = await JoinedWorker.start({ SKEIN_WORKER_NAME: 'edge' })
  const folder = join(joined.folder, 'worker')
  joined.manager.assign('endless', 'run-1', { onLost: OnLost.WAIT, secrets: { KEY: 'hush-hush' } })
  await joined.manager.running('run-1')
  const status = await readStatus(folder)
  expect(status).toMatchObject({ id: 'worker-1', name: 'edge', state: 'connected', slots: 2, spooled_results: 0 })
  expect(status.lease_ms).toBeGreaterThan(0)
  expect(status.runs).toMatchObject([{ run_id: 'run-1', task: 'endless', running: true, on_lost_wait: true }])
  expect(JSON.stringify(status)).not.toMatch(/hush|secret-1|let-me-in/)
  expect(renderStatus(status)).toMatch(/^Worker +edge {2}worker-1[^]*run-1 {2}endless {2}running for /)
  expect(status.readiness).toMatchObject({ status: 'ready', checks: { lease: { status: 'ready' } } })
  expect(renderStatus(status)).toMatch(/^Ready +yes$/m)
  expect(await health('worker', statusPath(folder))).toBe('healthy')
  expect(statSync(statusPath(folder)).mode & 0o777).toBe(0o600)
})

test('the status is available without a manager, and not without a running worker', async () => {
  await using joined = await JoinedWorker.start()
  const folder = join(joined.folder, 'worker')
  await joined.stopManager()
  await vi.waitFor(async () => expect((await readStatus(folder)).state).toBe('disconnected'), { timeout: 30_000 })
  const status = await readStatus(folder)
  expect(status.readiness).toMatchObject({ status: 'unavailable', checks: { manager: { status: 'unavailable' } } })
  expect(renderStatus(status)).toMatch(/^Ready +no {2}manager: no session with a task manager \(since 2/m)
  expect(await health('worker', statusPath(folder))).toMatch(/^the worker is unavailable \(manager: no session/)
  await joined.stop()
  expect(await health('worker', statusPath(folder))).toMatch(/ENOENT/)
  await expect(readStatus(folder)).rejects.toThrow('no worker is running')
})

test('the status fails with a message if the worker ends before it has answered', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'skein-status-'))
  const path = statusPath(folder)
  mkdirSync(dirname(path), { recursive: true })
  const server = createServer((socket) => socket.end('{"id":'))
  server.listen(path)
  await once(server, 'listening')
  await expect(readStatus(folder)).rejects.toThrow('it exited before it answered')
  server.close()
  await once(server, 'close')
  rmSync(folder, { recursive: true, force: true })
})
