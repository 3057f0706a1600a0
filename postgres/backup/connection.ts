/** Connects to the database of an installation, which need not run. */
import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import type pg from 'pg'
import { checkServerVersion, createDatabase } from '#core/database/index.ts'
import type { DatabaseAddress } from '#core/database/index.ts'
import { findEmbeddedConnection, startEmbeddedPostgres } from '../embedded/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import type { BackupConfig } from './settings.ts'

/**
 * Connects to the external database of the settings, otherwise to the embedded one of the data folder, which is started if necessary. Throws
 * `invalid_state` when the folder holds no database.
 */
export async function connectToExisting(life: Lifecycle, config: BackupConfig, logger: Logger): Promise<pg.Client> {
  if (config.databaseUrl !== undefined) return await connect(life, { url: config.databaseUrl.reveal() }, logger)
  const dataDir = resolve(config.dataDir)
  const connection = existsSync(dataDir) ? await findEmbeddedConnection(dataDir) : undefined
  if (connection === undefined)
    throw new ServiceError(
      'invalid_state',
      `${dataDir} holds no database of Skein: set SKEIN_DATA_DIR or SKEIN_DATABASE_URL`,
    )
  try {
    return await connect(life, connection, logger)
  } catch (error) {
    if (kindOf(error) !== 'unavailable') throw error
    logger.debug({ err: error }, 'the embedded PostgreSQL does not run; starting it')
  }
  return await connectToOwn(life, config, logger)
}

/** Connects as `connectToExisting` does, but locks the data folder. Throws `invalid_state` while Skein runs on it. */
export async function connectToOwn(life: Lifecycle, config: BackupConfig, logger: Logger): Promise<pg.Client> {
  if (config.databaseUrl !== undefined) return await connect(life, { url: config.databaseUrl.reveal() }, logger)
  const server = await life.start('embedded PostgreSQL', async () => {
    const value = await startEmbeddedPostgres({
      dataDir: resolve(config.dataDir),
      log: (line) => logger.debug({ from: 'postgres' }, line),
      signal: life.signal,
    })
    return { value, stop: () => value.stop() }
  })
  for (const notice of server.notices) logger.info(notice)
  return await connect(life, server.connection, logger)
}

async function connect(life: Lifecycle, address: DatabaseAddress, logger: Logger): Promise<pg.Client> {
  const database = createDatabase({ address, maxConnections: 1, applicationName: 'skein backup', logger })
  return await life.start('database connection', async () => {
    const value = await database.dedicated('skein backup')
    // A stop does not wait for the running statement.
    life.signal.addEventListener('abort', () => void value.end().catch(() => undefined), { once: true })
    await checkServerVersion(value, logger)
    return { value, stop: () => value.end() }
  })
}
