// task-manager.md section 3: a worker over TLS is given a certificate, and its secret alone is not enough afterwards
import { execFileSync, spawn } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createSecureContext } from 'node:tls'
import { credentials, status } from '@grpc/grpc-js'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { SigningKey, createSigningRequest } from '#x509/index.ts'
import { WorkerService, createServiceClient, fingerprintOf, serverName } from '#proto/index.ts'
import type { RegisterResponse } from '#proto/index.ts'
import { clientOf, startDatabase, startTestManager, temporaryFolder, until } from './support.ts'
import type { TestDatabase, TestManager } from './support.ts'

const DEADLINE = { deadlineMs: 30_000 }

let db: TestDatabase
let manager: TestManager
const folder = temporaryFolder('skein-certificates-')

beforeAll(async () => {
  db = await startDatabase()
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=manager']
  execFileSync('openssl', ['req', '-x509', ...kind, '-keyout', key, '-out', cert], { stdio: 'ignore' })
  const environment = { SKEIN_GRPC_TLS_CERT: cert, SKEIN_GRPC_TLS_KEY: key }
  manager = await startTestManager(db.database, { environment })
}, 60_000)

afterAll(async () => {
  await manager.close()
  await db.close()
  rmSync(folder, { recursive: true, force: true })
})

/** A client on a connection that shows this certificate, or none. */
function dial(shown?: { cert: string; key: string }) {
  const pinned = readFileSync(join(folder, 'cert.pem'), 'utf8')
  const expected = fingerprintOf(new X509Certificate(pinned))
  const context = createSecureContext({ ca: pinned, allowPartialTrustChain: true, ...shown })
  const channel = credentials.createFromSecureContext(context, {
    checkServerIdentity: (_name, seen) => (fingerprintOf(seen) === expected ? undefined : new Error('another one')),
  })
  return createServiceClient(WorkerService, manager.grpcAddress, channel, serverName(manager.grpcAddress))
}

/** A key, and a request for a certificate of it. */
async function newKey(): Promise<{ request: Uint8Array; key: string }> {
  const key = SigningKey.generate()
  return { request: new Uint8Array(await createSigningRequest('somebody else', key)), key: key.toPem() }
}

const FACTS = { name: 'w', bootId: 'b', version: '0', os: 'linux', arch: 'x64', slots: 1, runtimes: ['core'] }

async function joinWith(request: Uint8Array): Promise<RegisterResponse> {
  const client = dial()
  try {
    return await client.register({ ...FACTS, joinToken: manager.workerToken, certificateRequest: request }, DEADLINE)
  } finally {
    client.close()
  }
}

async function comeBack(worker: RegisterResponse, shown?: { cert: string; key: string }): Promise<RegisterResponse> {
  const client = dial(shown)
  try {
    return await client.register({ ...FACTS, workerId: worker.workerId, workerSecret: worker.workerSecret }, DEADLINE)
  } finally {
    client.close()
  }
}

test('the certificate contains the name of the worker, whatever the request contains, and is valid for 90 days', async () => {
  const { request } = await newKey()
  const worker = await joinWith(request)
  const certificate = new X509Certificate(worker.certificate?.certificatePem ?? '')
  expect(certificate.subject).toBe(`CN=${worker.workerId}`)
  expect(worker.certificate?.validForMs).toBe(BigInt(90 * 86_400_000))
  const authority = new X509Certificate(worker.certificate?.authorityPem ?? '')
  expect(certificate.verify(authority.publicKey)).toBe(true)
})

test('a worker with a certificate must show it; one without continues with its secret', async () => {
  const { request, key } = await newKey()
  const worker = await joinWith(request)
  const cert = worker.certificate?.certificatePem ?? ''
  await expect(comeBack(worker)).rejects.toMatchObject({ code: status.UNAUTHENTICATED })
  expect((await comeBack(worker, { cert, key })).sessionEpoch).toBe(2n)
  const plain = await joinWith(new Uint8Array())
  expect((await comeBack(plain)).workerId).toBe(plain.workerId)
})

test('the certificate of another worker is refused', async () => {
  const [mine, theirs] = [await newKey(), await newKey()]
  const worker = await joinWith(mine.request)
  const other = await joinWith(theirs.request)
  const shown = { cert: other.certificate?.certificatePem ?? '', key: theirs.key }
  await expect(comeBack(worker, shown)).rejects.toMatchObject({ code: status.UNAUTHENTICATED })
})

test('a certificate is renewed with the old one, and both are valid until the old one expires', async () => {
  const [old, fresh] = [await newKey(), await newKey()]
  const worker = await joinWith(old.request)
  const before = { cert: worker.certificate?.certificatePem ?? '', key: old.key }
  const asked = { workerId: worker.workerId, workerSecret: worker.workerSecret, certificateRequest: fresh.request }
  const bare = dial()
  await expect(bare.renew(asked, DEADLINE)).rejects.toMatchObject({ code: status.UNAUTHENTICATED })
  bare.close()
  const client = dial(before)
  const { certificate } = await client.renew(asked, DEADLINE)
  client.close()
  await comeBack(worker, before)
  await comeBack(worker, { cert: certificate?.certificatePem ?? '', key: fresh.key })
})

test('a revoked worker is refused with its certificate and without', async () => {
  const { request, key } = await newKey()
  const worker = await joinWith(request)
  expect((await clientOf(manager.app).post(`/workers/${worker.workerId}/revoke`)).status).toBe(204)
  const shown = { cert: worker.certificate?.certificatePem ?? '', key }
  await expect(comeBack(worker, shown)).rejects.toMatchObject({ code: status.UNAUTHENTICATED })
  await expect(comeBack(worker)).rejects.toMatchObject({ code: status.UNAUTHENTICATED })
})

test('a revoked worker cannot join with its old join token; with a new one it is another worker', async () => {
  const worker = await joinWith(new Uint8Array())
  const client = dial()
  const joinAs = ({ workerId, workerSecret }: { workerId: string; workerSecret: string }, joinToken: string) =>
    client.register({ ...FACTS, workerId, workerSecret, joinToken }, DEADLINE)
  try {
    const platform = clientOf(manager.app)
    expect((await platform.post(`/workers/${worker.workerId}/revoke`)).status).toBe(204)
    await expect(joinAs(worker, manager.workerToken)).rejects.toMatchObject({
      code: status.UNAUTHENTICATED,
      details: expect.stringContaining('was revoked') as string,
    })
    const made = await platform.post('/workers/tokens', { uses: 1 })
    const another = await joinAs(worker, String(made.body['token']))
    expect(another.workerId).not.toBe(worker.workerId)
    expect(another.workerSecret).not.toBe('')
    // Who shows nothing of the revoked one is another machine.
    expect((await joinAs({ workerId: '', workerSecret: '' }, manager.workerToken)).workerSecret).not.toBe('')
  } finally {
    client.close()
  }
})

test('an invalid request is refused', async () => {
  await expect(joinWith(new Uint8Array([1, 2, 3]))).rejects.toMatchObject({ code: status.INVALID_ARGUMENT })
})

/** The library by which a file sets the clock of a process. Debian's `faketime` brings it. */
function clockLibrary(): string | undefined {
  try {
    return execFileSync('faketime', ['-m', '-f', '+0', 'printenv', 'LD_PRELOAD'], { encoding: 'utf8' }).trim()
  } catch {
    if (process.env['CI'] === 'true') throw new Error('not installed: faketime')
    return undefined
  }
}
const library = clockLibrary()

test.skipIf(library === undefined)(
  'a worker whose clock begins in 1970 says that the certificate is not yet valid, and joins when its clock is right (needs faketime)',
  async () => {
    const clock = join(folder, 'clock')
    writeFileSync(clock, '@1970-01-02 00:00:00')
    const program = spawn(
      process.execPath,
      ['programs/run.ts', 'worker', '--manager', manager.grpcAddress, '--name', 'without-a-battery'],
      {
        stdio: ['ignore', 'pipe', 'inherit'],
        env: {
          PATH: process.env['PATH'],
          LD_PRELOAD: library,
          FAKETIME_TIMESTAMP_FILE: clock,
          FAKETIME_CACHE_DURATION: '1',
          FAKETIME_DONT_FAKE_MONOTONIC: '1',
          SKEIN_WORKER_DATA_DIR: join(folder, 'without-a-battery'),
          SKEIN_WORKER_TOKEN: manager.workerToken,
        },
      },
    )
    let said = ''
    program.stdout.setEncoding('utf8').on('data', (piece: string) => (said += piece))
    try {
      await until(
        'it says why it cannot join',
        () => Promise.resolve(said),
        (lines) => lines.includes('not yet valid'),
        60_000,
      )
      writeFileSync(clock, '+0')
      await until(
        'it has joined',
        () => Promise.resolve(said),
        (lines) => lines.includes('"msg":"joined"'),
        60_000,
      )
    } finally {
      program.kill('SIGTERM')
      await once(program, 'exit')
    }
  },
  120_000,
)
