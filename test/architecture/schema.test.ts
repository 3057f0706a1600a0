/** The migrations on an empty database make what migrations/schema.sql says, and that file makes the same again. */
import { createHash } from 'node:crypto'
import { readFile, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { describe, expect, inject, it } from 'vitest'
import { MIGRATIONS_FOLDER, migrate, readMigrations } from '#core/database/index.ts'
import { newId } from '#core/ids.ts'
import { dumpSchema } from '../../tools/generate/schema-dump.ts'
import { silentLogger } from '../harness/database.ts'

type EmptyDatabase = AsyncDisposable & { client: pg.Client }

async function emptyDatabase(): Promise<EmptyDatabase> {
  const server = inject('postgres')
  const name = `schema_${newId().replaceAll('-', '')}`
  const admin = new pg.Client(server)
  await admin.connect()
  await admin.query(`CREATE DATABASE ${name} TEMPLATE template0`)
  const client = new pg.Client({ ...server, database: name })
  await client.connect()
  return {
    client,
    async [Symbol.asyncDispose]() {
      await client.end()
      await admin.query(`DROP DATABASE ${name} WITH (FORCE)`)
      await admin.end()
    },
  }
}

const committed = await readFile(join(MIGRATIONS_FOLDER, 'schema.sql'), 'utf8')

describe('schema', () => {
  it('no migration was changed after it was recorded in SHA256SUMS, and each is recorded', async () => {
    const lines = (await readFile(join(MIGRATIONS_FOLDER, 'SHA256SUMS'), 'utf8')).trimEnd().split('\n')
    const files = (await readdir(MIGRATIONS_FOLDER)).filter((name) => /^\d{4}_.*\.sql$/.test(name)).toSorted()
    const digests = await Promise.all(
      files.map(async (name) => {
        const bytes = await readFile(join(MIGRATIONS_FOLDER, name))
        return `${createHash('sha256').update(bytes).digest('hex')}  ${name}`
      }),
    )
    expect(lines).toEqual(digests)
  })

  it('migrations on an empty database equal schema.sql', async () => {
    await using database = await emptyDatabase()
    await migrate(database.client, await readMigrations(MIGRATIONS_FOLDER), silentLogger)
    expect(await dumpSchema(database.client)).toBe(committed)
  })

  it('schema.sql is whole: a database made from it has the same dump', async () => {
    await using database = await emptyDatabase()
    await database.client.query(committed)
    expect(await dumpSchema(database.client)).toBe(committed)
  })

  it('the dump sees a column, a default, an index, a check, a function, a comment and a storage that changed', async () => {
    await using database = await emptyDatabase()
    await database.client.query(committed)
    for (const change of [
      'ALTER TABLE nodes ADD COLUMN extra text',
      "ALTER TABLE nodes ALTER COLUMN kind SET DEFAULT 'api'",
      'CREATE INDEX nodes_extra ON nodes (extra)',
      "ALTER TABLE nodes ADD CONSTRAINT nodes_kind_check CHECK (kind <> '')",
      'CREATE FUNCTION one() RETURNS integer LANGUAGE sql AS $$ SELECT 1 $$',
      "COMMENT ON TABLE nodes IS 'Nodes.'",
      "COMMENT ON COLUMN nodes.kind IS 'Kind.'",
      'ALTER TABLE nodes ALTER COLUMN kind SET STORAGE EXTERNAL',
    ]) {
      const before = await dumpSchema(database.client)
      await database.client.query(change)
      expect(await dumpSchema(database.client), change).not.toBe(before)
    }
  })

  it('every table and column has a sentence', async () => {
    await using database = await emptyDatabase()
    await migrate(database.client, await readMigrations(MIGRATIONS_FOLDER), silentLogger)
    await database.client.query('CREATE TABLE unexplained (id integer)')
    const { rows } = await database.client.query<{ name: string }>(`
      SELECT c.relname || coalesce('.' || a.attname, '') AS name
        FROM pg_class c LEFT JOIN LATERAL (
          SELECT NULL::name AS attname, 0 AS attnum UNION ALL
          SELECT attname, attnum FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) a ON true
       WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
         AND c.relname <> 'migrations'
         AND coalesce(CASE a.attnum WHEN 0 THEN obj_description(c.oid, 'pg_class') ELSE col_description(c.oid, a.attnum) END, '')
             !~ '[.}]$'
       ORDER BY 1`)
    // The one that the test adds shows that a missing sentence is seen.
    expect(rows.map(({ name }) => name)).toEqual(['unexplained', 'unexplained.id'])
  })

  it('every constraint and index has a name of our own, since the code reads names', () => {
    // Names that PostgreSQL makes up end in a number when they would repeat.
    expect(committed.match(/(CONSTRAINT|INDEX) \w+_(check|key|fkey|idx)\d+\b/g)).toBeNull()
  })
})
