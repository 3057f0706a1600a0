/** Names in any alphabet are found by a part of them, and totals are counted with every change (contract 2.4, 4.1, decision 0067). */
import { beforeAll, describe, expect, inject, test } from 'vitest'
import { createDatabase } from '#core/database/index.ts'
import { sumEntityCounts, mergeCounts } from '../../api/identity/listing/counts.ts'
import { warnOfSlowSearches } from '../../api/identity/listing/index.ts'
import { silentLogger } from '../harness/database.ts'
import type { TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'

type ListPage = { total: number; clients: { id: string; name: string }[] }

const api = useWorld(() => startTestApi())
let owner: TestUser
beforeAll(async () => {
  owner = await api.newUser()
})

async function newDomain(alias: string): Promise<{ id: string; key: number }> {
  const { id } = (await owner.call('POST', '/domains', { name: alias, alias })).json<{ id: string }>()
  const { rows } = await api.database.pool.query<{ key: number }>('SELECT key FROM domains WHERE id = $1', [id])
  return { id, key: rows[0]?.key ?? 0 }
}

describe('a part of a name', () => {
  const NAMES = [
    'Датчик температуры',
    'датчик давления',
    'ДАТЧИК 7',
    'насос',
    '温度传感器',
    '室内温度 3',
    '压力',
    'Ölpumpe',
    'ölstand',
    'pump',
  ]
  let domainId: string

  beforeAll(async () => {
    domainId = (await newDomain('alphabets')).id
    const created = await owner.call(
      'POST',
      `/${domainId}/clients/bulk`,
      NAMES.map((name) => ({ name })),
    )
    expect(created.status).toBe(200)
  })

  test.each([
    ['датчик', ['Датчик температуры', 'датчик давления', 'ДАТЧИК 7']],
    ['ДАТЧИК ТЕМП', ['Датчик температуры']],
    ['да', ['Датчик температуры', 'датчик давления', 'ДАТЧИК 7']],
    ['温度', ['温度传感器', '室内温度 3']],
    ['温', ['温度传感器', '室内温度 3']],
    ['温度传', ['温度传感器']],
    ['ÖL', ['Ölpumpe', 'ölstand']],
    ['ölp', ['Ölpumpe']],
    ['датчика', []],
  ] as const)('%s finds %j', async (part, wanted) => {
    const query = `order=name&name=${encodeURIComponent(part)}`
    const page = (await owner.call('GET', `/${domainId}/clients?${query}`)).json<ListPage>()
    expect(new Set(page.clients.map(({ name }) => name))).toEqual(new Set<string>(wanted))
    expect(page.total).toBe(wanted.length)
  })

  test('of three letters or more is found by the index of names, in any alphabet', async () => {
    const client = await api.database.dedicated('plans')
    try {
      await client.query('SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off')
      for (const part of ['датчик', '温度传', 'pump']) {
        const { rows } = await client.query<{ 'QUERY PLAN': string }>(
          `EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT key FROM clients WHERE name ILIKE '%${part}%'`,
        )
        const plan = rows.map((row) => row['QUERY PLAN']).join('\n')
        expect(plan).toContain('Bitmap Index Scan on clients_name_trgm')
        // Without trigrams of its letters every entry of the index would be a candidate.
        expect(plan).not.toMatch(/Rows Removed by Index Recheck: [5-9]/)
      }
    } finally {
      await client.end()
    }
  })
})

test.each([
  [
    'C',
    [
      'searches for names with non-ASCII letters are slow: the database has LC_CTYPE C; see docs/guides/external-database.md',
    ],
  ],
  ['C.UTF-8', []],
] as const)('a start on a database with LC_CTYPE %s reports whether such searches are slow', async (ctype, wanted) => {
  const name = `ctype_${ctype.replaceAll(/\W/g, '_').toLowerCase()}`
  const address = { ...inject('postgres'), database: name }
  const { pool } = api.database
  await pool.query(
    `CREATE DATABASE ${name} TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE '${ctype}'`,
  )
  const database = createDatabase({ address, maxConnections: 1, applicationName: name, logger: silentLogger })
  try {
    await database.pool.query('CREATE EXTENSION pg_trgm')
    const lines: string[] = []
    await warnOfSlowSearches(database.db, { ...silentLogger, warn: (line: string) => void lines.push(line) } as never)
    expect(lines).toEqual(wanted)
  } finally {
    await database.close()
    await pool.query(`DROP DATABASE ${name}`)
  }
})

describe('the number of clients', () => {
  const countOf = async (key: number, status?: string) =>
    await sumEntityCounts(api.database.db, 'client', [key], status)

  async function counted(key: number): Promise<Record<string, number>> {
    const { rows } = await api.database.pool.query<{ status: string; amount: number }>(
      'SELECT status, count(*)::int AS amount FROM clients WHERE domain_key = $1 GROUP BY status',
      [key],
    )
    return Object.fromEntries(rows.map(({ status, amount }) => [status, amount]))
  }

  async function expectCounted(key: number): Promise<void> {
    const { enabled = 0, disabled = 0 } = await counted(key)
    expect([await countOf(key, 'enabled'), await countOf(key, 'disabled'), await countOf(key)]).toEqual([
      enabled,
      disabled,
      enabled + disabled,
    ])
  }

  test('is exact after creations, changes of status and deletions, single ones and bulks', async () => {
    const { id, key } = await newDomain('counted')
    const at = `/${id}/clients`
    const many = Array.from({ length: 30 }, (_, index) => ({ status: index % 3 === 0 ? 'disabled' : 'enabled' }))
    const created = (await owner.call('POST', `${at}/bulk`, many)).json<ListPage>()
    await expectCounted(key)
    expect(await countOf(key)).toBe(30)
    const [first, second] = created.clients
    expect((await owner.call('POST', `${at}/${first?.id}/enable`)).status).toBe(200)
    expect((await owner.call('PATCH', `${at}/${first?.id}`, { name: 'renamed' })).status).toBe(200)
    expect((await owner.call('DELETE', `${at}/${second?.id}`)).status).toBe(200)
    await expectCounted(key)
    await api.database.pool.query(`UPDATE clients SET status = 'disabled' WHERE domain_key = $1`, [key])
    await expectCounted(key)
    expect((await owner.call('GET', `${at}?status=disabled`)).json<ListPage>().total).toBe(29)
    await api.database.pool.query('DELETE FROM clients WHERE domain_key = $1', [key])
    await expectCounted(key)
    await mergeCounts(api.database.db)
    const { rows } = await api.database.pool.query(
      `SELECT 1 FROM entity_counts WHERE domain_key = $1 AND entity_type = 'client'`,
      [key],
    )
    expect(rows).toEqual([])
  })

  test('stays exact while its parts are merged and clients come and go', async () => {
    const { id, key } = await newDomain('merged')
    const come = async () => {
      for (let turn = 0; turn < 30; turn++) {
        const made = (await owner.call('POST', `/${id}/clients`, {})).json<{ id: string }>()
        if (turn % 3 === 0) expect((await owner.call('DELETE', `/${id}/clients/${made.id}`)).status).toBe(200)
        await mergeCounts(api.database.db)
      }
    }
    await Promise.all([come(), come(), come()])
    await expectCounted(key)
    expect(await countOf(key)).toBe(60)
    await mergeCounts(api.database.db)
    const { rows } = await api.database.pool.query<{ parts: number }>(
      `SELECT count(*)::int AS parts FROM entity_counts WHERE domain_key = $1 AND entity_type = 'client'`,
      [key],
    )
    expect(rows[0]?.parts).toBeLessThanOrEqual(16)
  })

  test('is unchanged after a creation that is rolled back', async () => {
    const { id, key } = await newDomain('undone')
    expect(
      (await owner.call('POST', `/${id}/clients/bulk`, [{ credentials: { secret: 'a'.repeat(20) } }])).status,
    ).toBe(200)
    const taken = await owner.call('POST', `/${id}/clients/bulk`, [{}, { credentials: { secret: 'a'.repeat(20) } }])
    expect(taken.status).toBe(409)
    await expectCounted(key)
    expect(await countOf(key)).toBe(1)
  })
})
