/** A database of its own for a test file: a copy of the migrated template. */
import pg from 'pg'
import { inject } from 'vitest'
import { createDatabase } from '#core/database/index.ts'
import type { Database, DatabaseAddress } from '#core/database/index.ts'
import { newId } from '#core/ids.ts'
import { createLogger } from '#core/logging/index.ts'
import { TEMPLATE_DATABASE } from './postgres.ts'

export const silentLogger = createLogger({ name: 'test', level: 'silent' })

export type TestDatabase = AsyncDisposable & {
  readonly address: Exclude<DatabaseAddress, { url: string }>
  readonly database: Database
}

/** Copies of one template cannot be made at the same moment; PostgreSQL says so and the copy is tried again. */
const TEMPLATE_BUSY = '55006'
const COPY_ATTEMPTS = 200
const COPY_PAUSE_MS = 25

export async function createTestDatabase(): Promise<TestDatabase> {
  const server = inject('postgres')
  const name = `test_${newId().replaceAll('-', '')}`
  const admin = new pg.Client(server)
  await admin.connect()
  for (let attempt = 1; ; attempt++) {
    try {
      await admin.query(`CREATE DATABASE ${name} TEMPLATE ${TEMPLATE_DATABASE} STRATEGY file_copy`)
      break
    } catch (error) {
      if ((error as { code?: string }).code !== TEMPLATE_BUSY || attempt === COPY_ATTEMPTS) throw error
      await new Promise((resolve) => setTimeout(resolve, COPY_PAUSE_MS))
    }
  }
  const address = { ...server, database: name }
  const database = createDatabase({ address, maxConnections: 8, applicationName: name, logger: silentLogger })
  return {
    address,
    database,
    async [Symbol.asyncDispose]() {
      await database.close()
      await admin.query(`DROP DATABASE ${name} WITH (FORCE)`)
      await admin.end()
    },
  }
}
