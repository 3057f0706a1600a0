// What `npm run build` makes is the product: it starts, takes a message, runs tasks, and needs nothing beside it.
import { execFile } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readBuildInfo } from '#core/build-info.ts'
import { until } from '../harness/until.ts'
import { commandOf, createInstallation, familyOf, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { ROOT } from './deployment-files.ts'

const run = promisify(execFile)
const JOIN_DEADLINE_MS = 60_000

let installation: Installation
let whole: Whole
let token: string
let domain: string
let channel: { id: string }

const at = (path: string) => `/${domain}${path}`
const post = async <Body>(path: string, body: unknown): Promise<Body> => {
  const answer = await whole.call('POST', path, { body, authorization: `Bearer ${token}` })
  expect(answer.status, `${path}: ${answer.text}`).toBeLessThan(300)
  return (answer.text === '' ? undefined : answer.json()) as Body
}

beforeAll(async () => {
  installation = await createInstallation()
  whole = await startWhole(installation, 'dist/all.js')
  const login = await whole.call('POST', '/users/tokens/issue', {
    body: { identity: 'admin', secret: 'the-first-admin' },
  })
  token = login.json<{ access_token: string }>().access_token
  domain = (await post<{ id: string }>('/domains', { name: 'plant' })).id
  channel = await post<{ id: string }>(at('/channels'), { name: 'hall' })
})
afterAll(async () => {
  await whole[Symbol.asyncDispose]()
  installation[Symbol.dispose]()
})

/** Invokes a task with a module of the examples. */
async function invoke(module: string, fields: object, body: object): Promise<unknown> {
  const { id } = await post<{ id: string }>('/tasks', { name: module, domain_id: domain, ...fields })
  const form = new FormData()
  form.append('file', new Blob([readFileSync(join(ROOT, `examples/${module}/${module}.wasm`))]), `${module}.wasm`)
  const upload = await whole.call('PUT', `/tasks/${id}/upload`, { body: form, authorization: `Bearer ${token}` })
  expect(upload.status, upload.text).toBe(200)
  return await post(`/tasks/${id}/invoke`, body)
}

test('the version and the commit are shown', async () => {
  const { version, commit } = readBuildInfo()
  expect((await whole.call('GET', '/health')).json()).toMatchObject({ version, commit })
  const { stdout } = await run(process.execPath, ['dist/skein.js', '--version'], { cwd: ROOT })
  expect(stdout).toBe(`skein ${version}\n`)
})

test('a provisioned device publishes a message, and it is read', async () => {
  const client = await post<{ id: string; credentials: { secret: string } }>(at('/clients'), { name: 'pump' })
  await post(at('/channels/connect'), {
    client_ids: [client.id],
    channel_ids: [channel.id],
    types: ['publish', 'subscribe'],
  })
  const sent = await whole.call('POST', `/m/${domain}/c/${channel.id}`, {
    body: [{ n: 'speed', v: 7 }],
    authorization: `Client ${client.credentials.secret}`,
  })
  expect(sent.status).toBe(202)
  const read = await whole.call('GET', at(`/channels/${channel.id}/messages`), { authorization: `Bearer ${token}` })
  expect(read.json<{ messages: object[] }>().messages).toMatchObject([{ name: 'speed', value: 7 }])
})

test('tasks of a core module and of a component run', async () => {
  await until(
    async () => (await whole.call('GET', '/workers', { authorization: `Bearer ${token}` })).text.includes('"id"'),
    'the worker joins',
    JOIN_DEADLINE_MS,
  )
  expect(await invoke('add', {}, { inputs: [20, 22] })).toMatchObject({ results: [42], state: 3 })
  const grants = { grants: [{ channel_id: channel.id, kind: 'publish', name: 'converted' }] }
  const records = [{ n: 'water', t: 1_700_000_000, u: 'degF', v: 212 }]
  const converted = await invoke('unit-conversion', grants, {
    inputs: [JSON.stringify({ channel_id: 'raw', records })],
  })
  expect(converted).toMatchObject({ results: 1, state: 3 })
})

test('a runner can read its own code and nothing else of the build', () => {
  const folders = familyOf(whole.pid).flatMap((pid) =>
    [...commandOf(pid).matchAll(/--allow-fs-read=(\S+)\/\*/g)].map(([, folder = '']) => folder),
  )
  expect(folders.length).toBeGreaterThan(0)
  for (const folder of folders) {
    expect(folder).not.toContain(join(ROOT, 'dist'))
    expect(readdirSync(folder).toSorted()).toEqual(['core', 'guests', 'node_modules', 'package.json', 'worker'])
  }
})

test('a long document is read in its thread', async () => {
  const document = `name: pump\ncontent_type: application/json\ncontent_template: '{}'\n${'# comment\n'.repeat(1000)}`
  const answer = await fetch(installation.base + at('/clients/bootstrap/profiles/upload'), {
    method: 'POST',
    body: document,
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/yaml' },
  })
  expect(answer.status, await answer.text()).toBe(201)
})

test('the document of the API and its page are served', async () => {
  expect((await whole.call('GET', '/openapi.json')).json<{ openapi: string }>().openapi).toBe('3.1.0')
  expect((await whole.call('GET', '/docs/')).text).toContain('swagger-ui')
  expect((await whole.call('GET', '/docs/static/swagger-ui.css')).status).toBe(200)
})

test('every program starts alone in a folder and shows its settings', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'skein-dist-'))
  try {
    cpSync(join(ROOT, 'dist'), folder, { recursive: true })
    for (const program of ['all', 'api', 'manager', 'worker', 'proxy', 'skein']) {
      const { stdout } = await run(process.execPath, [join(folder, `${program}.js`), '--help'], { cwd: folder })
      expect(stdout, program).toContain('Usage:')
    }
    expect(existsSync(join(folder, 'LICENSES.txt'))).toBe(true)
  } finally {
    rmSync(folder, { recursive: true })
  }
})
