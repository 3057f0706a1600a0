/** Where the installation's secret key comes from, and proof that it is the one the database was made with. */
import { randomBytes } from 'node:crypto'
import { link, mkdir, open, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Secret } from '../config/index.ts'
import type { Queryable } from '../database/index.ts'
import { ServiceError } from '../errors/index.ts'
import { newId } from '../ids.ts'
import { MASTER_KEY_BYTES } from './keyring.ts'
import { sql } from '../sql.ts'

/** In the data folder. */
export const SECRET_KEY_FILE = 'secret.key'
/** 32 bytes in base64, in either alphabet. Anything else `Buffer.from` would read as well as it can. */
const ENCODED = /^[A-Za-z0-9+/_-]{43}=?$/
const OTHERS_MAY_READ = 0o077

function decode(text: string, name: string): Buffer {
  const encoded = text.trim()
  const key = Buffer.from(encoded, 'base64')
  if (!ENCODED.test(encoded) || key.length !== MASTER_KEY_BYTES) {
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
  const path = join(options.dataDir, SECRET_KEY_FILE)
  await mkdir(options.dataDir, { recursive: true })
  const text = await readKeyFile(path)
  if (text !== undefined) return decode(text, path)
  await makeKeyFile(path)
  return decode((await readKeyFile(path)) ?? '', path)
}

/** The key that the database was sealed with before, where it is to change. Throws `malformed`. */
export function parsePreviousKey(configured: Secret): Buffer {
  return decode(configured.reveal(), 'SKEIN_SECRET_KEY_PREVIOUS')
}

/** Undefined when there is none. Throws `invalid_state` when others may read it. */
async function readKeyFile(path: string): Promise<string | undefined> {
  try {
    const { mode } = await stat(path)
    if (process.platform !== 'win32' && (mode & OTHERS_MAY_READ) !== 0) {
      throw new ServiceError('invalid_state', `other users may read the secret key: run chmod 600 ${path}`)
    }
    return await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** The file appears whole or not at all: a key cut short by a crash would lock its owner out of every secret. */
async function makeKeyFile(path: string): Promise<void> {
  const draft = `${path}.${newId()}`
  const file = await open(draft, 'wx', 0o600)
  try {
    await file.writeFile(`${randomBytes(MASTER_KEY_BYTES).toString('base64')}\n`)
    await file.sync()
  } finally {
    await file.close()
  }
  try {
    // Unlike a rename, a link never replaces the key of a process that was quicker.
    await link(draft, path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    await rm(draft, { force: true })
  }
}

/** Refuses to go on with another key than the one that sealed what the database holds. */
export async function requireSameKey(db: Queryable, fingerprint: string): Promise<void> {
  await sql`INSERT INTO installation (name, value) VALUES ('secret_key_fingerprint', to_jsonb(${fingerprint}::text)) ON CONFLICT DO NOTHING`.execute(
    db,
  )
  const { rows } = await sql<{
    name: string
    value: string
  }>`SELECT name, value FROM installation WHERE name IN ('secret_key_fingerprint', 'secret_key_rotation')`.execute(db)
  const known = new Map(rows.map(({ name, value }) => [name, value]))
  if (known.has('secret_key_rotation')) {
    throw new ServiceError(
      'invalid_state',
      'a change of the secret key was not finished: start with the current key in SKEIN_SECRET_KEY and the one before in SKEIN_SECRET_KEY_PREVIOUS',
    )
  }
  if (known.get('secret_key_fingerprint') !== fingerprint) {
    throw new ServiceError(
      'invalid_state',
      'the database was made with another secret key: start with the SKEIN_SECRET_KEY (or the data folder) that belongs to it, or give that one as SKEIN_SECRET_KEY_PREVIOUS to change it',
    )
  }
}
