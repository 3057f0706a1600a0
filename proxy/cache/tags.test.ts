import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openRecords } from './records.ts'
import { openTagCache } from './tags.ts'

let folder: string
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'skein-tags-'))))
afterEach(() => rmSync(folder, { recursive: true }))

const DIGEST = `sha256:${'a'.repeat(64)}`
const NAME = 'r.example.com/acme/add:1'

const filesOf = (path: string) => readdirSync(path).filter((name) => name.endsWith('.json'))

describe('the tag cache', () => {
  it('uses an answer while it is fresh', async () => {
    const tags = await openTagCache({ folder, freshMs: 60_000, holdMs: 0 })
    expect(tags.fresh(NAME)).toBeUndefined()
    await tags.store(NAME, DIGEST)
    expect(tags.fresh(NAME)).toEqual({ manifestDigest: DIGEST, stale: false })
  })

  it('treats an answer of an earlier process as stale, and falls back on it', async () => {
    await (await openTagCache({ folder, freshMs: 60_000, holdMs: 0 })).store(NAME, DIGEST)
    const tags = await openTagCache({ folder, freshMs: 60_000, holdMs: 60_000 })
    expect(tags.fresh(NAME)).toBeUndefined()
    expect(await tags.fallBack(NAME)).toEqual({ manifestDigest: DIGEST, stale: true })
    expect(tags.fresh(NAME)).toEqual({ manifestDigest: DIGEST, stale: true })
    expect(await tags.fallBack('r.example.com/never:seen')).toBeUndefined()
  })
})

describe('records', () => {
  const parse = (value: unknown) => (typeof value === 'string' ? value : undefined)

  it('are bounded: the oldest is removed first', async () => {
    const records = await openRecords({ folder, maxRecords: 2, parse })
    for (const key of ['a', 'b', 'a', 'c']) await records.set(key, key)
    expect(await Promise.all(['a', 'b', 'c'].map((key) => records.get(key)))).toEqual(['a', undefined, 'c'])
    expect(filesOf(folder)).toHaveLength(2)
  })

  it('that are broken, or of another form, count as absent', async () => {
    const records = await openRecords({ folder, maxRecords: 2, parse })
    await records.set('a', 'a')
    const [name = ''] = filesOf(folder)
    for (const text of ['', '{"key":"a"', '[]', 'null', '{"key":"b","value":"a"}', '{"key":"a","value":1}']) {
      writeFileSync(join(folder, name), text)
      expect(await records.get('a')).toBeUndefined()
    }
  })
})
