// contract section 0 "Conventions", decision 58: what holds for any metadata, and for any page while others insert
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Person, Requests } from './requests.ts'
import { startRequests } from './requests.ts'

let requests: Requests
let ann: Person
let d = ''
beforeAll(async () => {
  requests = await startRequests()
  ann = await requests.person()
  d = (await ann('POST /domains -> 201', { sends: { name: 'plant' } })).id
})
afterAll(() => requests[Symbol.asyncDispose]())

/** PostgreSQL keeps no NUL in JSON, and no JSON text can be sent with half a character; `-0` is `0` in JSON. */
const isKept = (value: unknown): boolean =>
  !/\\u0000|__proto__/.test(JSON.stringify(value)) && JSON.stringify(value).isWellFormed()

const SEED = 58

test.each(['clients', 'channels', 'groups'])('metadata of any JSON survives on %s unchanged', async (type) => {
  const metadata = fc
    .dictionary(fc.string({ unit: 'grapheme', maxLength: 20 }), fc.jsonValue({ maxDepth: 4 }), { maxKeys: 6 })
    .map((value) => JSON.parse(JSON.stringify(value)) as Record<string, unknown>)
    .filter(isKept)
  await fc.assert(
    fc.asyncProperty(metadata, async (given) => {
      const made = await ann<{ id: string; metadata: unknown }>(`POST /${d}/${type} -> 201`, {
        sends: { name: 'one', metadata: given },
      })
      expect(made.metadata).toEqual(given)
      const found = await ann<{ metadata: unknown }>(`GET /${d}/${type}/${made.id} -> 200`)
      expect(found.metadata).toEqual(given)
    }),
    { seed: SEED, numRuns: 25 },
  )
})

test.each(['clients', 'channels', 'groups'])(
  'paging %s by creation visits every row once while others are inserted',
  async (type) => {
    const { id: domain } = await ann('POST /domains -> 201', { sends: { name: 'paged' } })
    const create = async (): Promise<string> =>
      (await ann(`POST /${domain}/${type} -> 201`, { sends: { name: 'row' } })).id
    const before: string[] = []
    for (let row = 0; row < 23; row++) before.push(await create())
    const visited: string[] = []
    for (let offset = 0; ; offset += 5) {
      const path = `/${domain}/${type}?order=created_at&dir=asc&limit=5&offset=${offset}`
      const [answer] = await Promise.all([
        ann<Record<string, { id: string }[]>>(`GET ${path} -> 200`),
        offset < 20 ? create() : undefined,
      ])
      const rows = answer[type] ?? []
      visited.push(...rows.map(({ id }) => id))
      if (rows.length < 5) break
    }
    expect(new Set(visited).size).toBe(visited.length)
    expect(visited.slice(0, before.length)).toEqual(before)
  },
)
