/** The change of the installation's secret key (contract section 15): nobody notices, and no half of it can be served. */
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'
import { createKeyring } from '#core/keyring/index.ts'
import { SEALED_COLUMNS } from '#api/config.ts'
import { sql } from '#core/sql.ts'
import { startTestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'

const newKey = () => randomBytes(32).toString('base64')

test('secrets are found and shown, and tokens verify, after a change of the key', async () => {
  await using database = await createTestDatabase()
  const [first, second, third] = [newKey(), newKey(), newKey()]
  let token: string
  let domainId: string
  // More than are encrypted again at a time.
  const secrets = Array.from({ length: 1100 }, (_, place) => `external-secret-${place}`)
  {
    await using api = await startTestApi({ database, environment: { SKEIN_SECRET_KEY: first } })
    const owner = await api.newUser()
    token = owner.accessToken
    domainId = (await owner.call('POST', '/domains', { name: 'plant' })).json<{ id: string }>().id
    const clients = secrets.map((secret) => ({ name: secret, credentials: { secret } }))
    expect((await owner.call('POST', `/${domainId}/clients/bulk`, clients)).status).toBe(200)
    const environment = { SKEIN_SECRET_KEY: second, SKEIN_SECRET_KEY_PREVIOUS: first }
    await expect(startTestApi({ database, environment })).rejects.toThrow('while other processes are running')
  }
  const found = async (environment: Record<string, string>) => {
    await using api = await startTestApi({ database, environment })
    const owner = api.as(`Bearer ${token}`)
    type Page = { total: number; clients: { id: string; name: string; credentials: { secret: string } }[] }
    const page = await until(async () => {
      const answer = await owner('GET', `/${domainId}/clients?limit=100&order=name&name=external-secret-10`)
      // A process that was held up refuses until it knows what changed meanwhile.
      return answer.status !== 503 && answer.json<Page>()
    }, 'the process has read the journal')
    expect(page.total, JSON.stringify(page).slice(0, 200)).toBe(111)
    for (const client of page.clients) {
      expect(client.credentials.secret).toBe(client.name)
    }
    const [one] = page.clients
    const identified = await api.as(`Client ${one?.name}`)('POST', '/clients/identify')
    expect(identified.json()).toMatchObject({ id: one?.id })
    const again = await owner('POST', `/${domainId}/clients`, { credentials: { secret: secrets[7] } })
    expect(again.status).toBe(409)
  }
  await found({ SKEIN_SECRET_KEY: second, SKEIN_SECRET_KEY_PREVIOUS: first })
  await found({ SKEIN_SECRET_KEY: second })
  await expect(startTestApi({ database, environment: { SKEIN_SECRET_KEY: first } })).rejects.toThrow(
    'another secret key',
  )

  // A change that was cut off: half of it is of the one key, half of the other.
  const half = await sql<{
    sealed: Buffer
    mac: Buffer
    key: number
  }>`SELECT key, secret_sealed AS sealed, secret_mac AS mac
    FROM clients ORDER BY key LIMIT 500`.execute(database.database.db)
  await found({ SKEIN_SECRET_KEY: third, SKEIN_SECRET_KEY_PREVIOUS: second })
  for (const row of half.rows)
    await sql`UPDATE clients SET secret_sealed = ${row.sealed}, secret_mac = ${row.mac} WHERE key = ${row.key}`.execute(
      database.database.db,
    )
  await sql`INSERT INTO installation (name, value) VALUES ('secret_key_rotation', to_jsonb(${createKeyring(Buffer.from(second, 'base64')).fingerprint}::text))`.execute(
    database.database.db,
  )
  for (const key of [second, third])
    await expect(startTestApi({ database, environment: { SKEIN_SECRET_KEY: key } })).rejects.toThrow('is incomplete')
  await found({ SKEIN_SECRET_KEY: third, SKEIN_SECRET_KEY_PREVIOUS: second })
  await found({ SKEIN_SECRET_KEY: third })
}, 120_000)

test('every column with sealed values is sealed again with the new key', () => {
  const schema = readFileSync(resolve(import.meta.dirname, '..', '..', 'migrations', 'schema.sql'), 'utf8')
  const listed = new Set(SEALED_COLUMNS.map(({ table, column }) => `${table}.${column}`))
  const sealed = [...schema.matchAll(/^CREATE TABLE (\w+) \(([\s\S]*?)^\);?/gmu)].flatMap(([, table, columns]) =>
    [...(columns ?? '').matchAll(/^ {2}(\w*(?:sealed|secrets)\w*) bytea/gmu)].map(([, column]) => `${table}.${column}`),
  )
  expect(sealed.length).toBeGreaterThan(4)
  expect(new Set(sealed)).toEqual(listed)
})
