/** What the tests of messages share: a database of their own, a logger, and builders with valid defaults. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { createDatabase, migrate, readMigrations } from '#core/database/index.ts'
import type { Database } from '#core/database/index.ts'
import { startEmbeddedPostgres } from '#core/database/embedded/index.ts'
import { createLogger } from '#core/logging/index.ts'

export const logger = createLogger({ name: 'test', level: 'silent' })

export type TestDatabase = { database: Database; close(): Promise<void> }

export async function startDatabase(): Promise<TestDatabase> {
  const folder = mkdtempSync(join(tmpdir(), 'skein-messages-'))
  chmodSync(folder, 0o755)
  const server = await startEmbeddedPostgres({ dataDir: folder, log: () => undefined, unsafe: true })
  const client = new pg.Client(server.connection)
  await client.connect()
  await migrate(client, await readMigrations(join(import.meta.dirname, '../../migrations')), logger)
  await client.end()
  const database = createDatabase({ address: server.connection, maxConnections: 8, applicationName: 'test', logger })
  return {
    database,
    async close() {
      await database.close()
      await server.stop()
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}
