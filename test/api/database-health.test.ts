/** `GET /health/database`: what an operator must know about the database, and who may know it. */
import { expect, test } from 'vitest'
import { recordBackup } from '#postgres/last-backup.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'

const api = useWorld(() => startTestApi())

test('a platform administrator sees durability, migrations, programs and the oldest writing transaction', async () => {
  const { pool } = api.infrastructure.database
  const writer = await pool.connect()
  try {
    await writer.query('BEGIN')
    await writer.query(`SELECT pg_current_xact_id(), pg_sleep(0.05)`)
    const answer = await api.admin('GET', '/health/database')
    expect(answer.status).toBe(200)
    expect(answer.json()).toMatchObject({
      version: expect.stringMatching(/^1[5-9]/) as string,
      is_embedded: false,
      is_replica: false,
      // The server of the tests is as unsafe as it says.
      settings: { fsync: 'off', synchronous_standby_names: '' },
      standbys: [],
      oldest_write: { application: 'skein test', seconds: expect.any(Number) as number },
      migrations: { newest: expect.stringMatching(/^\d+ \w+$/) as string },
      nodes: [expect.objectContaining({ kind: 'test', version: expect.any(String) as string }) as object],
    })
    const { migrations, size_bytes: size } = answer.json<{
      migrations: { known: number; applied: number }
      size_bytes: number
    }>()
    expect(migrations.applied).toBe(migrations.known)
    expect(size).toBeGreaterThan(0)
    expect(answer.json<{ oldest_write: { seconds: number } }>().oldest_write.seconds).toBeGreaterThan(0.04)
  } finally {
    await writer.query('ROLLBACK')
    writer.release()
  }
})

test('the time of the last backup appears after the first one', async () => {
  const backups = async () => (await api.admin('GET', '/health/database')).json<{ backups: object }>().backups
  expect(await backups()).toEqual({ installed_at: expect.stringMatching(/^20\d\d-.*Z$/) as string })
  const client = await api.infrastructure.database.dedicated('backup of a test')
  const before = new Date().toISOString()
  await recordBackup(client, 1000)
  await recordBackup(client, 2000)
  await client.end()
  const { last_at: lastAt } = (await backups()) as { last_at: string }
  expect(Math.abs(Date.parse(lastAt) - Date.parse(before))).toBeLessThan(60_000)
})

test('other callers are refused', async () => {
  const user = await api.newUser()
  expect((await user.call('GET', '/health/database')).status).toBe(403)
  expect((await api.anonymous('GET', '/health/database')).status).toBe(401)
})
