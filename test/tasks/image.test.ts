// specification section Task (image_url) and task-manager.md section 6: registry, proxy, manager and worker together
import { afterAll, beforeAll, expect, test } from 'vitest'
import { OCI_MANIFEST, digestOf, startRegistry, type TestRegistry } from '../proxy/misbehaving-registry.ts'
import { runProxy, type RunningProxy } from '../proxy/running-proxy.ts'
import { componentFromText } from '../worker/pool.ts'
import { clientOf, exampleModule, startDatabase, startTestManager, startTestWorker } from './support.ts'
import type { TestDatabase, TestManager, TestWorker } from './support.ts'

let registry: TestRegistry
let proxy: RunningProxy
let db: TestDatabase
let manager: TestManager
let worker: TestWorker
let client: ReturnType<typeof clientOf>

beforeAll(async () => {
  registry = await startRegistry()
  proxy = await runProxy({ environment: { PROXY_REGISTRY_URL: `http://${registry.host}` } })
  db = await startDatabase()
  manager = await startTestManager(db.database, { proxy })
  worker = await startTestWorker(manager)
  client = clientOf(manager.app)
}, 60_000)

afterAll(async () => {
  await worker.close()
  await manager.close()
  await db.close()
  await proxy.stop()
  await registry.close()
})

test('a task with an image_url requires no upload: the digest is resolved at the start and recorded with the run', async () => {
  const { moduleDigest, manifestDigest } = registry.module('acme/add', '1.0', exampleModule('add'))
  const { body } = await client.post('/tasks', { name: 'add', inputs: [20, 22], image_url: 'acme/add:1.0' })
  const id = String(body['id'])
  expect((await client.post(`/tasks/${id}/start`)).status).toBe(200)
  expect(await client.ended(id)).toMatchObject({ state: 3, results: [42] })
  expect((await client.get(`/tasks/${id}/runs`)).body).toMatchObject({
    runs: [{ module_digest: moduleDigest, module_reference: `${registry.host}/acme/add@${manifestDigest}` }],
  })
})

test('a component runs as wkg pushes it: with the title of its layer, annotations, and a config that names its world', async () => {
  const component = Buffer.from(
    await componentFromText(`(component
      (core module $m (func (export "f") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1))))
      (core instance $i (instantiate $m))
      (type $t (func (param "a" u32) (param "b" u32) (result u32)))
      (func $f (type $t) (canon lift (core func $i "f"))) (export "add" (func $f)))`),
  )
  // `wkg oci push --annotation …` of wasm-pkg-tools: keys in order of the alphabet.
  const config = {
    created: '2026-01-02T03:04:05.678901234Z',
    author: null,
    architecture: 'wasm',
    os: 'wasip2',
    layerDigests: [digestOf(component)],
    component: { exports: ['add'], imports: [], target: null },
  }
  const manifestDigest = registry.manifest('acme/sum', '1.0.0', {
    annotations: {
      'org.opencontainers.image.source': 'https://example.com/sum',
      'org.opencontainers.image.title': 'sum',
      'org.opencontainers.image.version': '1.0.0',
    },
    config: registry.blob(Buffer.from(JSON.stringify(config)), 'application/vnd.wasm.config.v0+json'),
    layers: [
      {
        annotations: { 'org.opencontainers.image.title': 'sum.wasm' },
        ...registry.blob(component, 'application/wasm'),
      },
    ],
    mediaType: OCI_MANIFEST,
    schemaVersion: 2,
  })
  const { body } = await client.post('/tasks', { name: 'add', inputs: [20, 22], image_url: 'acme/sum:1.0.0' })
  const id = String(body['id'])
  expect((await client.post(`/tasks/${id}/start`)).status).toBe(200)
  expect(await client.ended(id)).toMatchObject({ state: 3, results: 42 })
  expect((await client.get(`/tasks/${id}/runs`)).body).toMatchObject({
    runs: [{ module_reference: `${registry.host}/acme/sum@${manifestDigest}` }],
  })
})

test('a missing image or an invalid reference is 422 and the task stays pending', async () => {
  for (const image of ['acme/nothing:1.0', 'Not A Reference']) {
    const { body } = await client.post('/tasks', { name: 'add', inputs: [1, 2], image_url: image })
    const answer = await client.post(`/tasks/${String(body['id'])}/start`)
    expect(answer).toMatchObject({ status: 422, body: { error: 'unprocessable' } })
    expect(String(answer.body['message'])).toContain(image)
    expect((await client.get(`/tasks/${String(body['id'])}`)).body['state']).toBe(0)
  }
})

test('the later of an upload and an image_url overrides and clears the other', async () => {
  const id = await client.task('add')
  const edited = await client.put(`/tasks/${id}`, { image_url: 'acme/add:1.0' })
  expect(edited.body['module']).toBeUndefined()
  expect(edited.body['image_url']).toBe('acme/add:1.0')
  const uploaded = await client.upload(id, exampleModule('add'))
  expect(uploaded.body['image_url']).toBeUndefined()
  expect(uploaded.body['module']).toBeDefined()
})
