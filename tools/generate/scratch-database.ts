/** A temporary PostgreSQL for one generation, with the migrated schema. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { MIGRATIONS_FOLDER, migrate, readMigrations } from '#core/database/index.ts'
import { startEmbeddedPostgres } from '#postgres/embedded/index.ts'
import type { EmbeddedConnection } from '#postgres/embedded/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { shiftedClock } from '../shifted-clock.ts'

export type ScratchDatabase = AsyncDisposable & {
  readonly address: EmbeddedConnection
  /** Connected to the migrated database. */
  readonly client: pg.Client
}

const DATABASE = 'skein_generate'

export async function openScratchDatabase(): Promise<ScratchDatabase> {
  const folder = mkdtempSync(join(tmpdir(), 'skein-generate-'))
  // As root the server runs as another user.
  chmodSync(folder, 0o755)
  const server = await startEmbeddedPostgres({
    dataDir: folder,
    log: () => undefined,
    unsafe: true,
    environment: shiftedClock(),
  })
  const close = async () => {
    await server.stop()
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  }
  try {
    const admin = new pg.Client(server.connection)
    await admin.connect()
    await admin.query(`CREATE DATABASE ${DATABASE}`)
    await admin.end()
    const address = { ...server.connection, database: DATABASE }
    const client = new pg.Client(address)
    await client.connect()
    await migrate(client, await readMigrations(MIGRATIONS_FOLDER), createLogger({ name: 'generate', level: 'silent' }))
    return {
      address,
      client,
      async [Symbol.asyncDispose]() {
        await client.end()
        await close()
      },
    }
  } catch (error) {
    await close()
    throw error
  }
}
