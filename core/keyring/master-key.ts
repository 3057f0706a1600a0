/** Loads the secret key of the installation and checks that the database was sealed with it. */
import { randomBytes } from 'node:crypto'
import { link, mkdir, open, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Secret } from '../config/index.ts'
import type { Queryable } from '../database/index.ts'
import { ServiceError } from '../errors/index.ts'
import { newId } from '../ids.ts'
import { MASTER_KEY_BYTES } from './keyring.ts'
import { sql } from '../sql.ts'

/** The name of the key file in the data folder. */
export const SECRET_KEY_FILE = 'secret.key'
/** 32 bytes in base64, in either alphabet. `Buffer.from` would decode invalid text without an error. */
const ENCODED = /^[A-Za-z0-9+/_-]{43}=?$/
const OTHERS_MAY_READ = 0o077

function decode(text: string, name: string): Buffer {
  const encoded = text.trim()
  const key = Buffer.from(encoded, 'base64')
  if (!ENCODED.test(encoded) || key.length !== MASTER_KEY_BYTES) {
    throw new ServiceError(
      'malformed',
      `${name} must be ${MASTER_KEY_BYTES} bytes in base64 (generate one with: openssl rand -base64 ${MASTER_KEY_BYTES})`,
    )
  }
  return key
}

/**
 * The configured key; otherwise, with an embedded database, the key in the data folder, which is created at the first start
 * (readable by its owner only). With an external database the key must be configured: its loss makes every secret unreadable.
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
      `SKEIN_SECRET_KEY is required with SKEIN_DATABASE_URL (generate one with: openssl rand -base64 ${MASTER_KEY_BYTES}, and keep it with your backups)`,
    )
  }
  const path = join(options.dataDir, SECRET_KEY_FILE)
  await mkdir(options.dataDir, { recursive: true })
  const text = await readKeyFile(path)
  if (text !== undefined) return decode(text, path)
  await createKeyFile(path, randomBytes(MASTER_KEY_BYTES))
  return decode((await readKeyFile(path)) ?? '', path)
}

/** The configured key, else the one of the data folder; undefined where there is neither. */
export async function findMasterKey(configured: Secret | undefined, dataDir: string): Promise<Buffer | undefined> {
  if (configured !== undefined) return decode(configured.reveal(), 'SKEIN_SECRET_KEY')
  return await readMasterKey(join(dataDir, SECRET_KEY_FILE))
}

/** The key in the file; undefined when there is no such file. Throws `invalid_state` when others may read it. */
export async function readMasterKey(path: string): Promise<Buffer | undefined> {
  const text = await readKeyFile(path)
  return text === undefined ? undefined : decode(text, path)
}

/** Writes the key to a file that its owner alone may read. Throws `invalid_state` when the file holds something else. */
export async function storeMasterKey(path: string, key: Buffer): Promise<void> {
  await createKeyFile(path, key)
  if ((await readMasterKey(path))?.equals(key) !== true)
    throw new ServiceError('invalid_state', `${path} holds another secret key: move it away first`)
}

/** The key that the database was sealed with before, where it is to change. Throws `malformed`. */
export function parsePreviousKey(configured: Secret): Buffer {
  return decode(configured.reveal(), 'SKEIN_SECRET_KEY_PREVIOUS')
}

/** Undefined when there is no file. Throws `invalid_state` when other users may read it. */
async function readKeyFile(path: string): Promise<string | undefined> {
  try {
    const { mode } = await stat(path)
    if (process.platform !== 'win32' && (mode & OTHERS_MAY_READ) !== 0) {
      throw new ServiceError('invalid_state', `other users may read the secret key; run chmod 600 ${path}`)
    }
    return await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** The file appears whole or not at all: a key cut short by a crash would lock its owner out of every secret. */
async function createKeyFile(path: string, key: Buffer): Promise<void> {
  const draft = `${path}.${newId()}`
  const file = await open(draft, 'wx', 0o600)
  try {
    await file.writeFile(`${key.toString('base64')}\n`)
    await file.sync()
  } finally {
    await file.close()
  }
  try {
    // Unlike a rename, a link never replaces the key of a concurrent process.
    await link(draft, path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    await rm(draft, { force: true })
  }
}

/** Throws when the database was sealed with another key. */
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
      'a rotation of the secret key is incomplete; start with the current key in SKEIN_SECRET_KEY and the previous one in SKEIN_SECRET_KEY_PREVIOUS',
    )
  }
  if (known.get('secret_key_fingerprint') !== fingerprint) {
    throw new ServiceError(
      'invalid_state',
      'the database uses another secret key; start with its SKEIN_SECRET_KEY or its data folder, or set SKEIN_SECRET_KEY_PREVIOUS to its key to rotate it',
    )
  }
}
