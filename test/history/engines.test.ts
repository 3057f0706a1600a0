/**
 * Archived records as engines read them that nobody here wrote, by the lines of docs/guides/history-in-other-engines.md: count, sum, minimum
 * and maximum of each series equal those of the API (decision 0143). `install.sh` installs the engines.
 */
import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { processEnvironment } from '#core/config/index.ts'
import { archive, moveArrivals, newArchiveFolder } from '../messages/archive-support.ts'
import type { ArchiveFolder } from '../messages/archive-support.ts'
import { startPlant } from '../messages/support.ts'
import type { Plant } from '../messages/support.ts'

const GUIDE = join(import.meta.dirname, '..', '..', 'docs', 'guides', 'history-in-other-engines.md')
const ENGINES = processEnvironment()['HISTORY_ENGINES']
const PYTHON = ENGINES === undefined ? undefined : join(ENGINES, 'bin', 'python')
const isInstalled = PYTHON !== undefined && existsSync(PYTHON)
const DEADLINE_MS = 120_000
const NAMES = ['pyiceberg', 'polars', 'duckdb', 'chdb']
const run = promisify(execFile)

/** Code of the guide by the word after its language. */
function codeOf(engine: string): string {
  const [, code = ''] =
    new RegExp(`^\`\`\`python ${engine}\\n(.*?)^\`\`\``, 'ms').exec(readFileSync(GUIDE, 'utf8')) ?? []
  expect(code, `the guide has code for ${engine}`).not.toBe('')
  return code
}

let plant: Plant
let folder: ArchiveFolder
let url: string
let token: string
beforeAll(async () => {
  plant = await startPlant()
  folder = newArchiveFolder()
  await plant.api.app.listen({ host: '127.0.0.1', port: 0 })
  url = `http://127.0.0.1:${(plant.api.app.server.address() as AddressInfo).port}`
  token = await newToken()
})
afterAll(async () => {
  await plant[Symbol.asyncDispose]()
  folder[Symbol.dispose]()
})

/** A personal access token with the one scope that the guide names. */
async function newToken(): Promise<string> {
  const made = await plant.owner.call('POST', '/pats', { name: 'engines', duration: '1h' })
  expect(made.status, made.text).toBe(201)
  const { id, secret } = made.json<{ id: string; secret: string }>()
  const scope = { entity_type: 'messages', operation: 'subscribe', domain_id: plant.domainId, entity_id: '*' }
  const added = await plant.owner.call('PATCH', `/pats/${id}/scope/add`, { scopes: [scope] })
  expect(added.status, added.text).toBe(200)
  return secret
}

test('the guide installs the versions that are tested', () => {
  const guide = readFileSync(GUIDE, 'utf8')
  const tested = readFileSync(join(import.meta.dirname, 'requirements.txt'), 'utf8')
    .trim()
    .split('\n')
  expect(tested.length).toBeGreaterThan(4)
  for (const requirement of tested) expect(guide).toContain(requirement)
})

test.runIf(processEnvironment()['CI'] === 'true')('engines are installed where tests decide', () => {
  expect(isInstalled).toBe(true)
})

type Series = { count: number; sum: number; min: number; max: number }

/** What the engine prints, by channel and name. */
function parse(printed: string): Map<string, Series> {
  const rows = printed
    .trim()
    .split('\n')
    .map((line) => line.split(' '))
  return new Map(
    rows.map(([channel, name, count, sum, min, max]) => [
      `${channel} ${name}`,
      { count: Number(count), sum: Number(sum), min: Number(min), max: Number(max) },
    ]),
  )
}

/** The same of the API, which reads the database. */
async function ofApi(channels: readonly string[]): Promise<Map<string, Series>> {
  const series = new Map<string, Series>()
  for (const channel of channels) {
    const response = await plant.owner.call('GET', `/${plant.domainId}/channels/${channel}/messages?limit=100`)
    expect(response.status, response.text).toBe(200)
    const { messages, total } = response.json<{ messages: { name: string; value?: number }[]; total: number }>()
    expect(messages).toHaveLength(total)
    for (const { name, value } of messages) {
      if (value === undefined) continue
      const key = `${channel} ${name}`
      const { count, sum, min, max } = series.get(key) ?? { count: 0, sum: 0, min: Infinity, max: -Infinity }
      series.set(key, { count: count + 1, sum: sum + value, min: Math.min(min, value), max: Math.max(max, value) })
    }
  }
  return series
}

async function readBy(engine: string): Promise<Map<string, Series>> {
  const { stdout } = await run(PYTHON as string, ['-W', 'ignore', '-c', codeOf(engine)], {
    timeout: DEADLINE_MS,
    env: {
      ...processEnvironment(),
      SKEIN_URL: url,
      SKEIN_DOMAIN: plant.domainId,
      SKEIN_TOKEN: token,
    },
  })
  return parse(stdout)
}

const TEXTS = ['plain', '𝄞', '', '\u{10FFFF}', 'a\nb', '\uFFFF', '"quoted"']

async function publish(device: { secret: string; channelId: string }, pack: readonly object[]): Promise<void> {
  const response = await plant.api.as(`Client ${device.secret}`)(
    'POST',
    `/m/${plant.domainId}/c/${device.channelId}`,
    pack,
    { 'content-type': 'application/senml+json' },
  )
  expect(response.status, response.text).toBe(202)
}

describe.skipIf(!isInstalled)(isInstalled ? 'engines' : 'engines (not installed: HISTORY_ENGINES)', () => {
  const channels: string[] = []

  beforeAll(async () => {
    for (const weeks of [9, 6, 3]) {
      const device = await plant.newConnectedDevice()
      channels.push(device.channelId)
      await publish(device, [
        { bn: 'dev:', bt: 1_700_000_000, n: 'temperature', v: 21.5 },
        ...Array.from({ length: 20 }, (_, index) => ({ n: 'temperature', t: index + 0.25, v: index / 8 - weeks })),
        { n: 'zero', v: -0 },
        { n: 'large', v: 1.797e308 },
        { n: 'small', v: 5e-324 },
        { n: 'open', vb: true },
        { n: 'raw', vd: 'AP8' },
        { n: 'energy', v: 3, s: 1.5 },
        ...TEXTS.map((vs, index) => ({ n: `text${index}`, vs })),
      ])
      // Times before 1970, and the last one that can be stored.
      await publish(device, [
        { n: 'dev:old', t: -2_500_000_000.25, v: -1 },
        { n: 'dev:temperature', t: -3_500_000_000, v: 4 },
      ])
      await publish(device, [{ n: 'dev:last', t: 253_402_300_799, v: 9 }])
      await moveArrivals(plant.api, weeks)
      await archive(plant.api, folder.url)
    }
  })

  test.each(NAMES)('%s reads what the API reads', async (engine) => {
    const expected = await ofApi(channels)
    expect(expected.size).toBe(3 * 7)
    expect(await readBy(engine)).toEqual(expected)
  })

  test.each([
    [
      'pyiceberg',
      `from pyiceberg.catalog import load_catalog; import os, json
table = load_catalog("skein", type="rest", uri=f"{os.environ['SKEIN_URL']}/{os.environ['SKEIN_DOMAIN']}/iceberg", token=os.environ["SKEIN_TOKEN"]).load_table("history.records")
rows = table.scan(row_filter="string_value IS NOT NULL").to_arrow().to_pylist()
old = table.scan(row_filter="time < '1970-01-01T00:00:00+00:00'").to_arrow().to_pylist()
print(json.dumps({"texts": sorted([r["name"], r["string_value"]] for r in rows), "old": sorted([r["name"], round(r["time"].timestamp() * 1e6)] for r in old)}))`,
    ],
  ])('%s reads texts of any code point, and times before 1970', async (_engine, code) => {
    const { stdout } = await run(PYTHON as string, ['-W', 'ignore', '-c', code], {
      timeout: DEADLINE_MS,
      env: { ...processEnvironment(), SKEIN_URL: url, SKEIN_DOMAIN: plant.domainId, SKEIN_TOKEN: token },
    })
    const { texts, old } = JSON.parse(stdout) as { texts: [string, string][]; old: [string, number][] }
    expect(texts).toEqual(TEXTS.flatMap((text, index) => channels.map(() => [`dev:text${index}`, text])))
    expect(old.map(([name]) => name)).toEqual([
      ...channels.map(() => 'dev:old'),
      ...channels.map(() => 'dev:temperature'),
    ])
    expect(old.every(([, micros]) => micros < 0)).toBe(true)
  })

  test.each(NAMES)('%s reads the table after a deletion', async (engine) => {
    const [channel = ''] = channels
    if (engine === NAMES[0]) {
      const path = `/${plant.domainId}/channels/${channel}/messages?from=1700000005&to=1700000010`
      const deleted = await plant.owner.call('DELETE', path)
      expect(deleted.status, deleted.text).toBeLessThan(300)
      expect((await archive(plant.api, folder.url)).exported).toBe(1)
    }
    const expected = await ofApi(channels)
    expect(expected.get(`${channel} dev:temperature`)?.count).toBe(17)
    expect(await readBy(engine)).toEqual(expected)
  })
})
