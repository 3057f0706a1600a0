// task-manager.md sections 1 and 6: modules over HTTP with real users: what is cached where, pulling ahead, pushing,
// signatures, and what one domain sees of another
import { generateKeyPairSync, randomUUID, sign } from 'node:crypto'
import { rmSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startIdentity } from '#api/identity/index.ts'
import { IDENTITY_SETTINGS } from '#api/index.ts'
import { createLocalBus } from '#core/bus/index.ts'
import { readConfig } from '#core/config/index.ts'
import { createHttpApp, createMetrics } from '#http/index.ts'
import type { HttpApp } from '#http/index.ts'
import { createKeyring } from '#core/keyring/index.ts'
import { sql } from '#core/sql.ts'
import { Readiness } from '#core/readiness/index.ts'
import { createTaskAccess } from '#manager/index.ts'
import { deleteUploads } from '#manager/store/retention.ts'
import { OCI_MANIFEST, digestOf, startRegistry, wasmOf, type TestRegistry } from '../proxy/misbehaving-registry.ts'
import { runProxy, type RunningProxy } from '../proxy/running-proxy.ts'
import {
  clientOf,
  exampleModule,
  logger,
  masterKey,
  startDatabase,
  startTestManager,
  startTestWorker,
  temporaryFolder,
  until,
} from './support.ts'
import type { TestDatabase, TestManager, TestWorker } from './support.ts'

type Member = { headers: Record<string, string>; domain: string; name: string }
type Shown = { digest: string; domain_id?: string; source: string }
type Cached = { cached: { proxy: boolean | null; workers: { id: string }[] } }

let registry: TestRegistry
let proxy: RunningProxy
let db: TestDatabase
let identity: Awaited<ReturnType<typeof startIdentity>>
let platform: HttpApp
let manager: TestManager
let worker: TestWorker
let one: Member
let two: Member
const folder = temporaryFolder('skein-modules-')
const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const publicKey = pair.publicKey.export({ format: 'pem', type: 'spki' }).toString()

async function member(): Promise<Member> {
  const name = `user-${randomUUID().slice(0, 8)}`
  const client = clientOf(platform)
  const credentials = { username: name, secret: '12345678' }
  await client.post('/users', { first_name: name, last_name: name, email: `${name}@example.com`, credentials })
  const { body: tokens } = await client.post('/users/tokens/issue', { identity: name, secret: '12345678' })
  const headers = { authorization: `Bearer ${String(tokens['access_token'])}` }
  const { body } = await client.post('/domains', { name, route: `r${name.replaceAll('-', '')}` }, headers)
  return { headers, domain: String(body['id']), name }
}

const call = (who: Member, method: 'GET' | 'POST' | 'PUT' | 'DELETE', url: string, body?: unknown) =>
  clientOf(manager.app).call(method, url, body, who.headers)

async function push(who: Member, query: string, bytes: Buffer, headers: Record<string, string> = {}) {
  const response = await manager.app.inject({
    method: 'PUT',
    url: `/modules?${query}`,
    headers: { 'content-type': 'application/wasm', ...who.headers, ...headers },
    payload: bytes,
  })
  return { status: response.statusCode, body: response.json() as Record<string, unknown> }
}

async function modulesOf(who: Member, query = ''): Promise<(Shown & Cached)[]> {
  const { status, body } = await call(who, 'GET', `/modules${query}`)
  expect(status).toBe(200)
  return body['modules'] as (Shown & Cached)[]
}

/** Starts a task with this image and waits for its end. */
async function runImage(who: Member, image: string): Promise<{ state: unknown; id: string }> {
  const { body } = await call(who, 'POST', '/tasks', { name: 'add', inputs: [20, 22], image_url: image })
  const id = String(body['id'])
  expect((await call(who, 'POST', `/tasks/${id}/start`)).status).toBe(200)
  const ended = await until(
    'the end of the task',
    async () => (await call(who, 'GET', `/tasks/${id}/results`)).body['state'],
    (state) => state === 3 || state === 4,
  )
  return { state: ended, id }
}

/** Puts a signature of our key beside the manifest, as `cosign sign --key` does. */
function signManifest(repository: string, manifestDigest: string): void {
  const image = { 'docker-manifest-digest': manifestDigest }
  const payload = Buffer.from(
    JSON.stringify({ critical: { identity: {}, image, type: 'cosign container image signature' } }),
  )
  const annotations = {
    'dev.cosignproject.cosign/signature': sign('sha256', payload, pair.privateKey).toString('base64'),
  }
  const layer = registry.blob(payload, 'application/vnd.dev.cosign.simplesigning.v1+json')
  registry.manifest(repository, `${manifestDigest.replace(':', '-')}.sig`, {
    schemaVersion: 2,
    mediaType: OCI_MANIFEST,
    config: registry.blob(Buffer.from('{}'), 'application/vnd.oci.image.config.v1+json'),
    layers: [{ ...layer, annotations }],
  })
}

beforeAll(async () => {
  registry = await startRegistry()
  proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` }, limits: { tagFreshMs: 0 } })
  db = await startDatabase()
  identity = await startIdentity({
    config: readConfig(IDENTITY_SETTINGS, {}),
    database: db.database,
    bus: createLocalBus(),
    keyring: createKeyring(masterKey),
    logger,
    dataDir: folder,
    tailIntervalMs: 20,
  })
  const authenticate = identity.authenticate
  platform = createHttpApp({
    logger,
    health: {
      build: { version: '0', commit: 'none', buildTime: 'now' },
      metrics: createMetrics(),
      readiness: new Readiness(),
      serviceOf: () => 'api',
    },
    maxBodyBytes: 1024 * 1024,
    corsOrigins: [],
    trustProxy: [],
    keyring: createKeyring(masterKey),
    authenticate,
  })
  await identity.routes(platform)
  await platform.ready()
  const access = createTaskAccess({
    database: db.database,
    access: identity.access,
    quotas: identity.quotas,
    authenticate,
    mode: 'on',
    corsOrigins: [],
  })
  manager = await startTestManager(db.database, { access, proxy })
  worker = await startTestWorker(manager, { labels: 'zone=north' })
  one = await member()
  two = await member()
}, 60_000)

afterAll(async () => {
  await worker.close()
  await manager.close()
  await platform.close()
  await identity.stop()
  await db.close()
  await proxy[Symbol.asyncDispose]()
  await registry.close()
  rmSync(folder, { recursive: true, force: true })
})

/** Makes a task of the user with this example uploaded; the digest of the module. */
async function upload(who: Member, name: string): Promise<{ task: string; digest: string }> {
  const { body } = await call(who, 'POST', '/tasks', { name })
  const task = String(body['id'])
  const form = new FormData()
  form.append('file', new Blob([new Uint8Array(exampleModule(name))]), 'module.wasm')
  const encoded = new Response(form)
  const headers = { ...who.headers, 'content-type': encoded.headers.get('content-type') ?? '' }
  const payload = Buffer.from(await encoded.arrayBuffer())
  const uploaded = await manager.app.inject({ method: 'PUT', url: `/tasks/${task}/upload`, headers, payload })
  expect(uploaded.statusCode).toBe(200)
  return { task, digest: digestOf(exampleModule(name)) }
}

describe('the list of modules', () => {
  test('shows the modules of tasks to their domain only, with their place and exports', async () => {
    const { moduleDigest, manifestDigest } = registry.module('acme/add', '1.0', exampleModule('add'))
    expect((await runImage(one, 'acme/add:1.0')).state).toBe(3)
    // What a worker has comes with its heartbeat.
    const [shown] = await until(
      'the module at the worker',
      () => modulesOf(one),
      ([first]) => first?.cached.workers.length === 1,
    )
    expect(shown).toMatchObject({
      digest: moduleDigest,
      size: exampleModule('add').length,
      source: 'registry',
      domain_id: one.domain,
      reference: `${registry.host}/acme/add@${manifestDigest}`,
      image_url: 'acme/add:1.0',
      signed: false,
      cached: { proxy: true, workers: [{ id: worker.id }] },
    })
    expect(await modulesOf(two)).toEqual([])
    expect((await call(two, 'GET', `/modules/${moduleDigest}`)).status).toBe(404)
    // What it exports may be long, and is shown with the module alone.
    expect(shown).not.toHaveProperty('exports')
    const { body } = await call(one, 'GET', `/modules/${moduleDigest}`)
    expect(body['modules']).toHaveLength(1)
    expect(body['exports']).toEqual([{ name: 'add', kind: 'function', params: ['i32', 'i32'], results: ['i32'] }])
    expect(body).toMatchObject({ kind: 'core', imports: [] })
    expect((await call(two, 'GET', `/modules?domain_id=${one.domain}`)).status).toBe(403)
  })

  test('shows uploads with the number of their tasks, page by page', async () => {
    const ids: string[] = []
    for (let round = 0; round < 2; round++) ids.push((await upload(two, 'fibonacci')).task)
    const digest = digestOf(exampleModule('fibonacci'))
    const [shown, ...others] = await modulesOf(two, '?source=upload')
    expect(others).toEqual([])
    expect(shown).toMatchObject({ digest, source: 'upload', tasks: 2, cached: { proxy: null } })
    expect(shown).not.toHaveProperty('exports')
    const { body } = await call(two, 'GET', `/modules/${digest}`)
    expect((body['exports'] as { name: string }[]).map(({ name }) => name)).toContain('fibonacci')
    expect(await modulesOf(two, '?source=registry')).toEqual([])
    expect((await call(two, 'GET', '/modules?offset=1&limit=1')).body).toMatchObject({ total: 1, modules: [] })
    expect(await call(two, 'DELETE', `/modules/${digest}`)).toMatchObject({
      status: 409,
      body: { error: 'invalid_state' },
    })
    // The bytes leave the database with the last task, and not before.
    const stored = async () =>
      (await sql`SELECT 1 FROM modules WHERE digest = ${digest}`.execute(db.database.db)).rows.length
    for (const id of ids) {
      await deleteUploads(db.database, '0 seconds')
      expect(await stored()).toBe(1)
      expect((await call(two, 'DELETE', `/tasks/${id}`)).status).toBe(204)
    }
    await deleteUploads(db.database)
    expect(await stored()).toBe(1)
    await deleteUploads(db.database, '0 seconds')
    expect(await stored()).toBe(0)
  })

  test('refuses an invalid page, an invalid digest, and a caller without a token', async () => {
    expect((await call(one, 'GET', '/modules?limit=101')).status).toBe(400)
    expect((await call(one, 'GET', '/modules/nonsense')).status).toBe(400)
    const nobody = clientOf(manager.app)
    for (const url of ['/modules', `/modules/${digestOf(Buffer.from(''))}`, '/modules/policy'])
      expect((await nobody.get(url)).status).toBe(401)
    expect((await nobody.post('/modules', { reference: 'm' })).status).toBe(401)
    expect((await nobody.delete(`/modules/${digestOf(Buffer.from(''))}`)).status).toBe(401)
  })
})

describe('removing a module', () => {
  test('drops it from the proxy when no other domain used it', async () => {
    const { moduleDigest } = registry.module('acme/shared', '1.0', exampleModule('memory-eater'))
    for (const who of [one, two]) {
      expect((await call(who, 'POST', '/modules', { reference: 'acme/shared:1.0' })).status).toBe(202)
    }
    const isProxied = async (who: Member) =>
      (await modulesOf(who)).find(({ digest }) => digest === moduleDigest)?.cached.proxy
    await until('the module at the proxy', () => isProxied(one), Boolean)
    expect((await call(one, 'DELETE', `/modules/${moduleDigest}`)).status).toBe(204)
    expect((await call(one, 'DELETE', `/modules/${moduleDigest}`)).status).toBe(404)
    expect(await isProxied(two)).toBe(true)
    expect((await call(two, 'DELETE', `/modules/${moduleDigest}`)).status).toBe(204)
    await expect(proxy.fetch(moduleDigest)).rejects.toMatchObject({ kind: 'not_found' })
  })
})

describe('pre-pulling', () => {
  test('fetches a module to the proxy and to the chosen workers before its first start', async () => {
    const bytes = exampleModule('endless')
    const { moduleDigest } = registry.module('acme/ahead', '1.0', bytes)
    const order = { reference: 'acme/ahead:1.0', workers: 'all', labels: { zone: 'north' } }
    const answer = await call(one, 'POST', '/modules', order)
    expect(answer).toMatchObject({
      status: 202,
      body: { digest: moduleDigest, size: bytes.length, signed: false, notes: [], workers: 1 },
    })
    expect(answer.headers['location']).toBe(`/modules/${moduleDigest}`)
    const found = async () => (await modulesOf(one)).find(({ digest }) => digest === moduleDigest)
    const there = await until('the module at the worker', found, (module) => module?.cached.workers.length === 1)
    expect(there?.cached.proxy).toBe(true)
  })

  test('skips workers without the label, and refuses what a start would refuse', async () => {
    const elsewhere = { reference: 'acme/ahead:1.0', workers: 'all', labels: { zone: 'south' } }
    expect((await call(one, 'POST', '/modules', elsewhere)).body['workers']).toBe(0)
    expect((await call(one, 'POST', '/modules', { reference: 'acme/nothing:1' })).status).toBe(422)
    expect((await call(one, 'POST', '/modules', { reference: 'Not A Reference' })).status).toBe(422)
    expect((await call(one, 'POST', '/modules', {})).status).toBe(400)
    expect((await call(one, 'POST', '/modules', { reference: 'm', domain_id: two.domain })).status).toBe(403)
  })
})

describe('a policy', () => {
  const set = (who: Member, body: object, query = '') => call(who, 'PUT', `/modules/policy${query}`, body)

  test('requires signatures of one domain and asks nothing of another', async () => {
    const signed = registry.module('acme/signed', '1.0', exampleModule('add'))
    registry.module('acme/unsigned', '1.0', exampleModule('add'))
    signManifest('acme/signed', signed.manifestDigest)
    expect((await call(one, 'GET', '/modules/policy')).body).toEqual({ signatures: 'off', keys: [] })
    expect(await set(one, { signatures: 'require', keys: [publicKey] })).toMatchObject({ status: 200 })
    expect((await call(one, 'GET', '/modules/policy')).body).toEqual({ signatures: 'require', keys: [publicKey] })
    expect((await runImage(one, 'acme/signed:1.0')).state).toBe(3)
    const used = (await modulesOf(one)).find(
      (module) => (module as { image_url?: string }).image_url === 'acme/signed:1.0',
    )
    expect(used).toMatchObject({ signed: true })
    const { body } = await call(one, 'POST', '/tasks', { name: 'add', inputs: [1, 2], image_url: 'acme/unsigned:1.0' })
    const refused = await call(one, 'POST', `/tasks/${String(body['id'])}/start`)
    expect(refused).toMatchObject({ status: 422 })
    expect(refused.body['message']).toContain('not signed')
    expect((await runImage(two, 'acme/unsigned:1.0')).state).toBe(3)
  })

  test('that warns lets the module run and reports it in the run', async () => {
    expect((await set(one, { signatures: 'warn', keys: [publicKey] })).status).toBe(200)
    const { id, state } = await runImage(one, 'acme/unsigned:1.0')
    expect(state).toBe(3)
    const { body } = await call(one, 'GET', `/tasks/${id}/runs`)
    expect((body['runs'] as { module_notes: string[] }[])[0]?.module_notes).toEqual([
      expect.stringContaining('is not signed by a key of the policy'),
    ])
  })

  test('has public keys, belongs to a domain, and is set by users who manage its workers', async () => {
    const privateKey = pair.privateKey.export({ format: 'pem', type: 'pkcs8' }).toString()
    for (const body of [
      { signatures: 'require' },
      { signatures: 'require', keys: [] },
      { signatures: 'require', keys: ['nonsense'] },
      { signatures: 'off', keys: [privateKey] },
      { signatures: 'maybe', keys: [publicKey] },
    ]) {
      const { status, body: answer } = await set(one, body)
      expect(status).toBe(400)
      expect(JSON.stringify(answer)).not.toContain('PRIVATE')
    }
    expect((await set(two, { signatures: 'off' }, `?domain_id=${one.domain}`)).status).toBe(403)
    expect((await call(two, 'GET', `/modules/policy?domain_id=${one.domain}`)).status).toBe(403)
    expect((await set(one, { signatures: 'off' })).body).toEqual({ signatures: 'off', keys: [] })
  })
})

describe('a push', () => {
  test('of a domain is stored below its own id and is the module of a task afterwards', async () => {
    const taken = new Map<string, Buffer>()
    registry.intercept(async (request, response, path) => {
      if (request.method === 'GET') return false
      if (request.method === 'HEAD') return response.writeHead(404).end() !== undefined
      const pieces: Buffer[] = []
      for await (const piece of request) pieces.push(piece as Buffer)
      const bytes = Buffer.concat(pieces)
      const repository = /^\/v2\/(.+)\/(?:blobs|manifests)\//.exec(path)?.[1] ?? ''
      if (request.method === 'POST') {
        response.writeHead(202, { location: `/v2/${repository}/blobs/uploads/1` }).end()
      } else {
        if (path.includes('/manifests/'))
          registry.manifest(repository, path.split('/').at(-1), JSON.parse(bytes.toString()) as object)
        else registry.blob(bytes, '')
        taken.set(path, bytes)
        response.writeHead(201).end()
      }
      return true
    })
    const bytes = exampleModule('add')
    const pushed = await push(one, `reference=${one.domain}/add:1.0`, bytes)
    expect(pushed).toMatchObject({ status: 201, body: { digest: digestOf(bytes), size: bytes.length } })
    expect(String(pushed.body['reference'])).toContain(`/${one.domain}/add@sha256:`)
    expect((await runImage(one, `${one.domain}/add:1.0`)).state).toBe(3)
    // Another domain neither reads it nor writes there.
    const { body } = await call(two, 'POST', '/tasks', {
      name: 'add',
      inputs: [1, 2],
      image_url: `${one.domain}/add:1.0`,
    })
    expect((await call(two, 'POST', `/tasks/${String(body['id'])}/start`)).status).toBe(422)
    expect((await push(two, `reference=${one.domain}/add:1.0`, bytes)).status).toBe(422)
    expect((await push(two, `reference=${one.domain}/add:1.0&domain_id=${one.domain}`, bytes)).status).toBe(403)
    // The registry of this test wants no login.
    const open = await push(two, 'reference=acme/own:1.0', bytes)
    expect(open).toMatchObject({ status: 201, body: { login: 'none' } })
    const basic = `Basic ${Buffer.from('u:p').toString('base64')}`
    const own = await push(two, 'reference=acme/own:1.0', bytes, { 'registry-authorization': basic })
    expect(own).toMatchObject({ status: 201, body: { login: 'own' } })
  })

  test('refuses an invalid module, another media type, too many bytes and an invalid login', async () => {
    const reference = `reference=${one.domain}/x:1`
    expect((await push(one, reference, Buffer.from('hello world, no module'))).status).toBe(422)
    expect((await push(one, reference, Buffer.alloc(0))).status).toBe(422)
    expect((await push(one, reference, wasmOf(10), { 'content-type': 'text/plain' })).status).toBe(415)
    expect((await push(one, reference, wasmOf(10), { 'registry-authorization': 'Basic x' })).status).toBe(400)
    expect((await push(one, '', wasmOf(10))).status).toBe(400)
    expect((await push(one, reference, wasmOf(64 * 1024 * 1024 + 1))).status).toBe(413)
  })
})

type Ticket = { ticket: string; expires_at: string; registry: string; artifact: string; digest: string; size: number }

describe('a ticket', () => {
  const ticketOf = (who: Member, body: object) => call(who, 'POST', '/modules/tickets', body)
  const readContent = (digest: string, headers: Record<string, string>) =>
    manager.app.inject({ method: 'GET', url: `/modules/${digest}/content`, headers })

  test('pulls a module that a task of the domain used from the proxy, by each of its references, for an hour', async () => {
    const bytes = exampleModule('moving-average')
    const digests = ['1.0', '2.0'].map((tag) => registry.module('acme/average', tag, bytes).manifestDigest)
    for (const tag of ['1.0', '2.0']) await runImage(one, `acme/average:${tag}`)
    const digest = digestOf(bytes)
    for (const manifest of digests) {
      const reference = `${registry.host}/acme/average@${manifest}`
      const { status, body } = await ticketOf(one, { digest, reference })
      expect(status).toBe(201)
      const made = body as Ticket
      expect(made).toMatchObject({ digest, size: bytes.length, registry: proxy.address })
      expect(made.artifact.endsWith(`@${manifest}`)).toBe(true)
      const lifeMs = Date.parse(made.expires_at) - Date.now()
      expect(lifeMs).toBeGreaterThan(3500_000)
      expect(lifeMs).toBeLessThanOrEqual(3600_000)
      const [name] = made.artifact.split('@')
      const pulled = await fetch(`http://${made.registry}/v2/${name}/blobs/${digest}`, {
        headers: { authorization: `bearer   ${made.ticket}` },
      })
      expect(Buffer.from(await pulled.arrayBuffer()).equals(bytes)).toBe(true)
    }
    expect((await ticketOf(one, { digest, reference: `${registry.host}/acme/other@${digests[0]}` })).status).toBe(404)
  })

  test('is not issued for another tenant, without a token, or for a module without a task', async () => {
    const digest = digestOf(exampleModule('moving-average'))
    expect((await ticketOf(two, { digest })).status).toBe(404)
    expect((await ticketOf(two, { digest, domain_id: one.domain })).status).toBe(403)
    expect((await ticketOf(one, { digest: `sha256:${'0'.repeat(64)}` })).status).toBe(404)
    expect((await ticketOf(one, { digest: 'latest' })).status).toBe(400)
    expect((await ticketOf(one, {})).status).toBe(400)
    expect((await clientOf(manager.app).post('/modules/tickets', { digest }, {})).status).toBe(401)
  })

  test('gives access to the bytes of an upload, whole or in part, and of no other module', async () => {
    const bytes = exampleModule('threshold-alarm')
    const { task, digest } = await upload(two, 'threshold-alarm')
    const other = await upload(two, 'unit-conversion')
    const made = (await ticketOf(two, { digest })).body as Ticket
    expect(made.artifact).toBe(`uploads/${digest.slice('sha256:'.length)}:latest`)
    const authorization = `Bearer ${made.ticket}`
    const whole = await readContent(digest, { authorization })
    expect(whole).toMatchObject({ statusCode: 200, headers: { 'content-type': 'application/wasm' } })
    expect(whole.rawPayload.equals(bytes)).toBe(true)
    const part = await readContent(digest, { authorization, range: 'bytes=5-' })
    expect(part).toMatchObject({ statusCode: 206 })
    expect(part.rawPayload.equals(bytes.subarray(5))).toBe(true)
    expect((await readContent(digest, { authorization, range: `bytes=${bytes.length}-` })).statusCode).toBe(416)
    expect((await readContent(other.digest, { authorization })).statusCode).toBe(401)
    expect((await readContent(digest, {})).statusCode).toBe(401)
    expect((await ticketOf(one, { digest })).status).toBe(404)
    for (const id of [task, other.task]) expect((await call(two, 'DELETE', `/tasks/${id}`)).status).toBe(204)
    await deleteUploads(db.database, '0 seconds')
    expect((await readContent(digest, { authorization })).statusCode).toBe(404)
  })
})

describe('the bytes of a module', () => {
  const readContent = (digest: string, headers: Record<string, string>, method: 'GET' | 'HEAD' = 'GET') =>
    manager.app.inject({ method, url: `/modules/${digest}/content`, headers })

  test('are those of an upload or of a registry, whole or in part, for callers who can read a task with it', async () => {
    const uploaded = await upload(one, 'threshold-alarm')
    const bytes = exampleModule('endless')
    const { moduleDigest } = registry.module('acme/endless', '1.0', bytes)
    expect((await call(one, 'POST', '/modules', { reference: 'acme/endless:1.0' })).status).toBe(202)
    for (const [digest, expected] of [
      [uploaded.digest, exampleModule('threshold-alarm')],
      [moduleDigest, bytes],
    ] as const) {
      const whole = await readContent(digest, one.headers)
      expect(whole).toMatchObject({
        statusCode: 200,
        headers: {
          'content-type': 'application/wasm',
          'content-length': String(expected.length),
          'content-disposition': `attachment; filename="${digest.slice(7, 19)}.wasm"`,
          etag: `"${digest}"`,
        },
      })
      expect(whole.rawPayload.equals(expected)).toBe(true)
      const part = await readContent(digest, { ...one.headers, range: 'bytes=7-19' })
      expect(part).toMatchObject({ statusCode: 206, rawPayload: expected.subarray(7, 20) })
      expect(await readContent(digest, one.headers, 'HEAD')).toMatchObject({ statusCode: 200, body: '' })
      // To another tenant it is as one that nobody has.
      const nothing = await readContent(`sha256:${'0'.repeat(64)}`, two.headers)
      const foreign = await readContent(digest, two.headers)
      expect([nothing.statusCode, foreign.statusCode]).toEqual([404, 404])
      expect(foreign.json<{ message: string }>().message).toBe(nothing.json<{ message: string }>().message)
      expect((await readContent(digest, {})).statusCode).toBe(401)
    }
    expect((await call(one, 'DELETE', `/tasks/${uploaded.task}`)).status).toBe(204)
  })

  test('of an unavailable registry are refused before anything is sent', async () => {
    const { moduleDigest } = registry.module('acme/gone', '1.0', wasmOf(8_000))
    expect((await call(one, 'POST', '/modules', { reference: 'acme/gone:1.0' })).status).toBe(202)
    await until(
      'the module at the proxy',
      async () => (await modulesOf(one)).find(({ digest }) => digest === moduleDigest)?.cached.proxy,
      Boolean,
    )
    await proxy.ask('DELETE', `/modules/${moduleDigest}`)
    registry.intercept((_request, response, path) => {
      if (!path.includes(moduleDigest)) return false
      response.writeHead(404).end()
      return true
    })
    const { statusCode, body } = await readContent(moduleDigest, one.headers)
    expect([statusCode, body]).toEqual([422, expect.stringContaining('acme/gone')])
  })
})

describe('inspection', () => {
  const inspect = async (who: { headers: Record<string, string> }, bytes: Buffer, query = '') => {
    const response = await manager.app.inject({
      method: 'POST',
      url: `/modules/inspect${query}`,
      headers: { 'content-type': 'application/wasm', ...who.headers },
      payload: bytes,
    })
    return { status: response.statusCode, body: response.json<Record<string, unknown>>() }
  }
  /** Imports `env.print (i32) -> ()`, which no worker offers. */
  const foreignImport = Buffer.from('0061736d0100000001050160017f00020d0103656e76057072696e740000', 'hex')

  test('shows digest, exports and imports with their types, and stores nothing', async () => {
    const bytes = exampleModule('add')
    const before = await sql`SELECT key FROM modules`.execute(db.database.db)
    expect(await inspect(one, bytes)).toEqual({
      status: 200,
      body: {
        digest: digestOf(bytes),
        size: bytes.length,
        kind: 'core',
        runtime: 'core',
        exports: [{ name: 'add', kind: 'function', params: ['i32', 'i32'], results: ['i32'] }],
        imports: [],
      },
    })
    const alarm = await inspect(one, exampleModule('threshold-alarm'), `?domain_id=${one.domain}`)
    expect(alarm.body).toMatchObject({
      imports: expect.arrayContaining([expect.objectContaining({ kind: 'function' })]),
    })
    expect(await sql`SELECT key FROM modules`.execute(db.database.db)).toEqual(before)
  })

  test('of a module that a task would refuse contains the reason', async () => {
    const { status, body } = await inspect(one, foreignImport)
    expect([status, body]).toEqual([
      200,
      expect.objectContaining({
        imports: [{ module: 'env', name: 'print', kind: 'function', params: ['i32'], results: [] }],
        refusal: expect.stringContaining('env.print'),
      }),
    ])
    expect(body).not.toHaveProperty('runtime')
  })

  test('refuses an invalid module, strangers, and domains of others', async () => {
    expect((await inspect(one, Buffer.from('no module'))).status).toBe(400)
    expect((await inspect(one, Buffer.alloc(0))).status).toBe(400)
    expect((await inspect({ headers: {} }, exampleModule('add'))).status).toBe(401)
    expect((await inspect(one, exampleModule('add'), `?domain_id=${two.domain}`)).status).toBe(403)
    expect(await call(one, 'POST', '/modules/inspect', {})).toMatchObject({ status: 415 })
  })

  test('of a module of the domain requires no bytes', async () => {
    const { task, digest } = await upload(one, 'threshold-alarm')
    const { body } = await call(one, 'GET', `/modules/${digest}`)
    const { body: shown } = await call(one, 'GET', `/tasks/${task}`)
    const { kind, exports, imports } = shown['module'] as Record<string, unknown>
    expect(body).toMatchObject({ kind, exports, imports })
    expect((await call(one, 'DELETE', `/tasks/${task}`)).status).toBe(204)
  })
})

test('a registry that does not respond is reported in the run, and the last known module is used', async () => {
  registry.module('acme/stale', '1.0', exampleModule('add'))
  expect((await runImage(two, 'acme/stale:1.0')).state).toBe(3)
  registry.intercept((_request, response) => {
    response.destroy()
    return true
  })
  const { id, state } = await runImage(two, 'acme/stale:1.0')
  expect(state).toBe(3)
  const { body } = await call(two, 'GET', `/tasks/${id}/runs`)
  expect((body['runs'] as { module_notes: string[] }[])[0]?.module_notes).toEqual([
    expect.stringContaining('did not answer'),
  ])
})
