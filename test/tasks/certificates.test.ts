// task-manager.md section 3: a worker joins over TLS with a token, gets a certificate, and is known by it from then on
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readConfig } from '#core/config/index.ts'
import { WORKER_SETTINGS, readStatus, startWorker } from '#worker/index.ts'
import { clientOf, logger, startDatabase, startTestManager, temporaryFolder } from './support.ts'
import type { TestDatabase, TestManager } from './support.ts'

let db: TestDatabase
let manager: TestManager
let folder: string

beforeAll(async () => {
  db = await startDatabase()
  manager = await startTestManager(db.database, { environment: { SKEIN_HOST: '0.0.0.0' } })
  folder = temporaryFolder('skein-worker-')
}, 60_000)

afterAll(async () => {
  await manager.close()
  await db.close()
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
})

/** A worker of the folder; without a token it has what an earlier start left there. */
function joinAs(token: string) {
  const port = manager.grpcAddress.split(':').at(-1)
  return startWorker({
    config: readConfig(WORKER_SETTINGS, {
      SKEIN_DATA_DIR: folder,
      SKEIN_WORKER_MANAGER: `127.0.0.1:${port}`,
      SKEIN_WORKER_TOKEN: token,
      SKEIN_WORKER_SLOTS: '1',
      SKEIN_WORKER_DRAIN: '0s',
    }),
    logger,
    version: '0.0.0',
    timing: { reconnectMinMs: 20, reconnectMaxMs: 200 },
  })
}

test('joins with a token that names the server, works, and comes back with its certificate alone', async () => {
  const client = clientOf(manager.app)
  const worker = await joinAs(manager.workerToken)
  const { certificate_ends_at: end } = await readStatus(join(folder, 'worker'))
  expect(Date.parse(end ?? '')).toBeGreaterThan(Date.now())
  const id = await client.task('add', { inputs: [1, 2] })
  await client.post(`/tasks/${id}/start`)
  expect(await client.ended(id)).toMatchObject({ state: 3, results: [3] })
  await worker.stop()
  const again = await joinAs('')
  expect(again.id).toBe(worker.id)
  await again.stop()
}, 60_000)

test('a secret without the certificate that belongs to it is not enough', async () => {
  const path = join(folder, 'worker', 'certificate')
  const certificate = readFileSync(path)
  rmSync(path)
  await expect(joinAs('')).rejects.toMatchObject({ kind: 'unauthenticated' })
  writeFileSync(path, certificate, { mode: 0o600 })
  await (await joinAs('')).stop()
}, 60_000)

test('a worker that was revoked is not let in again', async () => {
  const worker = await joinAs('')
  expect((await clientOf(manager.app).post(`/workers/${worker.id}/revoke`)).status).toBeLessThan(300)
  await worker.stop()
  await expect(joinAs('')).rejects.toMatchObject({ kind: 'unauthenticated' })
}, 60_000)
