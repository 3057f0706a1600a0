/** Where the installation's secret key comes from, and proof that it is the one the database was made with. */
import { randomBytes } from 'node:crypto'
import { mkdir, open, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { sql } from 'kysely'
import type { Secret } from '../config/index.ts'
import type { Queryable } from '../database/index.ts'
import { ServiceError } from '../errors/index.ts'
import { MASTER_KEY_BYTES } from './keyring.ts'

const FILE_NAME = 'secret.key'

function decode(text: string, name: string): Buffer {
  const key = Buffer.from(text.trim(), 'base64')
  if (key.length !== MASTER_KEY_BYTES) {
    throw new ServiceError(
      'malformed',
      `${name} must be ${MASTER_KEY_BYTES} bytes in base64 (make one with: openssl rand -base64 ${MASTER_KEY_BYTES})`,
    )
  }
  return key
}

/**
 * The configured key; else, beside an embedded database, the one of the data folder, made there at the first start
 * (readable by the owner alone). With an external database a key must be given: losing it means losing every secret.
 */
export async function loadMasterKey(options: {
  configured: Secret | undefined
  dataDir: string
  isEmbedded: boolean
}): Promise<Buffer> {
  if (options.configured !== undefined) return decode(options.configured.reveal(), 'SKEIN_SECRET_KEY')
  if (!options.isEmbedded) {
    throw new ServiceError(
      'malformed',
      `SKEIN_SECRET_KEY is required with SKEIN_DATABASE_URL (make one with: openssl rand -base64 ${MASTER_KEY_BYTES}, and keep it with your backups)`,
    )
  }
  const path = join(options.dataDir, FILE_NAME)
  await mkdir(options.dataDir, { recursive: true })
  try {
    const file = await open(path, 'wx', 0o600)
    try {
      await file.writeFile(`${randomBytes(MASTER_KEY_BYTES).toString('base64')}\n`)
      await file.sync()
    } finally {
      await file.close()
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  return decode(await readFile(path, 'utf8'), path)
}

/** Refuses to go on with another key than the one that sealed what the database holds. */
export async function requireSameKey(db: Queryable, fingerprint: string): Promise<void> {
  await sql`INSERT INTO installation (name, value) VALUES ('secret_key_fingerprint', to_jsonb(${fingerprint}::text)) ON CONFLICT DO NOTHING`.execute(
    db,
  )
  const { rows } = await sql<{
    value: string
  }>`SELECT value FROM installation WHERE name = 'secret_key_fingerprint'`.execute(db)
  if (rows[0]?.value !== fingerprint) {
    throw new ServiceError(
      'invalid_state',
      'the database was made with another secret key: start with the SKEIN_SECRET_KEY (or the data folder) that belongs to it',
    )
  }
}
