/**
 * Archived records in a bucket of a real S3 server, as PyIceberg and others read them by the lines of the guide, with keys of their own
 * (decision 0160). The server is versitygw, which checks signatures and checksums; it keeps objects in a folder, so it tells nothing of
 * regions, of names of buckets in hosts, or of stores that are eventually consistent. `install.sh` installs it.
 */
import { execFile, spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Secret, processEnvironment } from '#core/config/index.ts'
import { s3Store } from '../../api/messages/archive/s3-store.ts'
import { S3Error } from '../../api/messages/archive/s3-error.ts'
import type { S3Target } from '../../api/messages/archive/s3-target.ts'
import { ChangedByOther } from '../../api/messages/archive/store.ts'
import { until } from '../harness/until.ts'
import { moveArrivals, tryArchive } from '../messages/archive-support.ts'
import { startPlant } from '../messages/support.ts'
import type { Plant } from '../messages/support.ts'

const GUIDE = join(import.meta.dirname, '..', '..', 'docs', 'guides', 'history-in-other-engines.md')
const ENGINES = processEnvironment()['HISTORY_ENGINES']
const installed = (name: string) => (ENGINES === undefined ? '' : join(ENGINES, 'bin', name))
const isInstalled = existsSync(installed('python')) && existsSync(installed('versitygw'))
const DEADLINE_MS = 120_000
const [KEY, SECRET, BUCKET] = ['archive-test-key', 'archive-test-secret', 'archive']
const run = promisify(execFile)

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}

function codeOf(engine: string): string {
  const [, code = ''] =
    new RegExp(`^\`\`\`python ${engine}\\n(.*?)^\`\`\``, 'ms').exec(readFileSync(GUIDE, 'utf8')) ?? []
  expect(code, `the guide has code for ${engine}`).not.toBe('')
  return code
}

test.runIf(processEnvironment()['CI'] === 'true')('the server is installed where tests decide', () => {
  expect(isInstalled).toBe(true)
})

describe.skipIf(!isInstalled)(isInstalled ? 'buckets' : 'buckets (not installed: HISTORY_ENGINES)', () => {
  let server: ChildProcess
  let folder: string
  let target: S3Target
  let plant: Plant
  let url: string
  let token: string
  const base = `s3://${BUCKET}/skein/history`

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'skein-bucket-'))
    mkdirSync(join(folder, BUCKET))
    const side = join(folder, '.side')
    mkdirSync(side)
    const port = await freePort()
    const args = [
      '--quiet',
      '--port',
      `127.0.0.1:${port}`,
      'posix',
      '--sidecar',
      mkdtempSync(join(tmpdir(), 'skein-side-')),
      folder,
    ]
    const env = { ...processEnvironment(), ROOT_ACCESS_KEY: KEY, ROOT_SECRET_KEY: SECRET }
    server = spawn(installed('versitygw'), args, { env, stdio: 'ignore' })
    const [accessKey, secretKey] = [new Secret(KEY), new Secret(SECRET)]
    const endpoint = `http://127.0.0.1:${port}`
    target = { endpoint, region: 'us-east-1', isPathStyle: true, accessKey, secretKey, lacks: new Set() }
    await until(
      () =>
        fetch(endpoint).then(
          () => true,
          () => false,
        ),
      'the server',
      60_000,
    )
    plant = await startPlant({
      environment: {
        SKEIN_ARCHIVE_URL: base,
        SKEIN_ARCHIVE_S3_ENDPOINT: endpoint,
        SKEIN_ARCHIVE_S3_ACCESS_KEY: KEY,
        SKEIN_ARCHIVE_S3_SECRET_KEY: SECRET,
      },
    })
    await plant.api.app.listen({ host: '127.0.0.1', port: 0 })
    url = `http://127.0.0.1:${(plant.api.app.server.address() as AddressInfo).port}`
    token = await newToken()
  })
  afterAll(async () => {
    await plant?.[Symbol.asyncDispose]()
    server?.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  })

  async function newToken(): Promise<string> {
    const made = await plant.owner.call('POST', '/pats', { name: 'engines', duration: '1h' })
    expect(made.status, made.text).toBe(201)
    const { id, secret } = made.json<{ id: string; secret: string }>()
    const scope = { entity_type: 'messages', operation: 'subscribe', domain_id: plant.domainId, entity_id: '*' }
    const added = await plant.owner.call('PATCH', `/pats/${id}/scope/add`, { scopes: [scope] })
    expect(added.status, added.text).toBe(200)
    return secret
  }

  /** Objects of the bucket; the server keeps pieces of uploads below a name with a dot. */
  const objects = () =>
    readdirSync(join(folder, BUCKET), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name))

  const noise = (length: number) => {
    const bytes = new Uint8Array(length)
    for (let at = 0; at < length; at += 65_536)
      crypto.getRandomValues(bytes.subarray(at, Math.min(at + 65_536, length)))
    return bytes
  }

  test('the server takes files in pieces and whole, and gives up what was begun', async () => {
    const store = s3Store({ target })
    const bytes = noise(20 * 1024 * 1024 + 7)
    const file = await store.beginFile(`${base}/pieces`)
    for (let at = 0; at < bytes.length; at += 3_000_000) await file.write(bytes.slice(at, at + 3_000_000))
    await file.close()
    expect(Buffer.compare(readFileSync(join(folder, BUCKET, 'skein/history/pieces')), bytes)).toBe(0)
    const begun = await store.beginFile(`${base}/begun`)
    await begun.write(noise(9 * 1024 * 1024))
    expect(await store.removeBegun(base, Date.now() - 60_000, () => true)).toBe(0)
    expect(await store.removeBegun(base, Date.now() + 60_000, () => true)).toBe(1)
    await expect(begun.close()).rejects.toBeInstanceOf(S3Error)
    const names = []
    for await (const { name } of store.namesIn(base)) names.push(name)
    expect(names).toEqual(['pieces'])
    expect(
      (
        await store.removeFiles([
          { path: `${base}/pieces`, isPartial: true },
          { path: `${base}/missing`, isPartial: false },
        ])
      ).size,
    ).toBe(0)
    expect(await store.sizeOf(`${base}/pieces`)).toBeUndefined()
  })

  test('the server honours conditions, and refuses other keys and bodies', async () => {
    const store = s3Store({ target })
    const word = `${base}/word`
    await store.replaceText(word, 'first', undefined)
    const before = await store.readText(word)
    await store.replaceText(word, 'second', before)
    expect(target.hasConditions).toBe(true)
    await expect(store.replaceText(word, 'late', before)).rejects.toBeInstanceOf(ChangedByOther)
    expect((await store.readText(word))?.text).toBe('second')
    const other = s3Store({ target: { ...target, secretKey: new Secret('another') } })
    await expect(other.readText(word)).rejects.toThrow('403 SignatureDoesNotMatch')
    expect((await store.removeFiles([{ path: word, isPartial: false }])).size).toBe(0)
  })

  test('more names than a page has are listed', async () => {
    const store = s3Store({ target })
    const many = Array.from({ length: 1005 }, (_, index) => `name${index}`)
    mkdirSync(join(folder, BUCKET, 'many'))
    for (const name of many) writeFileSync(join(folder, BUCKET, 'many', name), 'x')
    const found = []
    for await (const { name } of store.namesIn(`s3://${BUCKET}/many`)) found.push(name)
    expect(found.toSorted()).toEqual(many.toSorted())
    const files = many.map((name) => ({ path: `s3://${BUCKET}/many/${name}`, isPartial: false }))
    expect((await store.removeFiles(files)).size).toBe(0)
    const left = []
    for await (const { name } of store.namesIn(`s3://${BUCKET}/many`)) left.push(name)
    expect(left).toEqual([])
  })

  test.each(['pyiceberg', 'polars'])('%s reads the bucket with keys of its own', async (engine) => {
    const isFirst = engine === 'pyiceberg'
    if (isFirst) {
      const device = await plant.newConnectedDevice()
      const path = `/m/${plant.domainId}/c/${device.channelId}`
      const pack = Array.from({ length: 100 }, (_, index) => ({ n: 'temperature', t: index, v: index / 4 }))
      const type = { 'content-type': 'application/senml+json' }
      const sent = await plant.api.as(`Client ${device.secret}`)('POST', path, pack, type)
      expect(sent.status, sent.text).toBe(202)
      await moveArrivals(plant.api, 6)
      const round = await until(() => tryArchive(plant.api, base, { s3: target }), 'a round', DEADLINE_MS)
      expect(round).toMatchObject({ failed: 0, failures: [] })
      expect(objects().length).toBeGreaterThan(4)
    }
    const { stdout } = await run(installed('python'), ['-W', 'ignore', '-c', codeOf(engine)], {
      timeout: DEADLINE_MS,
      env: {
        ...processEnvironment(),
        SKEIN_URL: url,
        SKEIN_DOMAIN: plant.domainId,
        SKEIN_TOKEN: token,
        AWS_ACCESS_KEY_ID: KEY,
        AWS_SECRET_ACCESS_KEY: SECRET,
        // Polars does not take it from the catalogue.
        AWS_ENDPOINT_URL: target.endpoint,
        AWS_REGION: target.region,
        AWS_ALLOW_HTTP: 'true',
      },
    })
    const rows = stdout
      .trim()
      .split('\n')
      .map((line) => line.split(' ').slice(1))
    expect(rows.map(([name, ...values]) => [name, ...values.map(Number)])).toEqual([
      ['temperature', 100, 1237.5, 0, 24.75],
    ])
  })
})
