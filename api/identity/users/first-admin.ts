/** The first platform administrator, created at the first start (decision 48). There is no default password. */
import { existsSync } from 'node:fs'
import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import type { Secret } from '#core/config/index.ts'
import { newId, newToken } from '#core/ids.ts'
import type { Database } from '#core/database/index.ts'
import type { Journal } from '../journal/index.ts'
import { hashPassword } from '../passwords/index.ts'
import { newUserFacts } from './changes.ts'
import { requireEmail, requireUsername } from './identity.ts'
import { findUserByLogin, hasPlatformAdmin, insertUser, lockFirstAdmin } from './repository.ts'

export type FirstAdminOptions = {
  database: Database
  journal: Journal
  email: string
  username: string
  secret: Secret | undefined
  uniqueNames: boolean
  passwordPattern: RegExp
  /** Folder of the file with the random secret, which only the owner can read. */
  dataDir: string
}

/**
 * The first administrator in the start banner. The secret is set only at the start that created it, its file while it
 * exists.
 */
export type FirstAdmin = { username: string; secretFile: string | undefined; createdSecret: string | undefined }

const SECRET_FILE = 'admin-secret'
const RANDOM_SECRET_BYTES = 18

/**
 * Throws `invalid_state` when the email or username belongs to a user who is not a platform administrator, and
 * `malformed` with the name of an invalid setting.
 */
export async function ensureFirstAdmin(options: FirstAdminOptions): Promise<FirstAdmin> {
  const { database, journal, uniqueNames, dataDir } = options
  const secretFile = join(dataDir, SECRET_FILE)
  const nothingCreated: FirstAdmin = { username: options.username, secretFile: undefined, createdSecret: undefined }
  if (await hasPlatformAdmin(database.db))
    return { ...nothingCreated, secretFile: existsSync(secretFile) ? secretFile : undefined }
  const email = readSetting('SKEIN_ADMIN_EMAIL', () => requireEmail(options.email))
  const username = readSetting('SKEIN_ADMIN_USERNAME', () => requireUsername(options.username))
  const createdSecret = options.secret === undefined ? newToken(RANDOM_SECRET_BYTES) : undefined
  const secret = createdSecret ?? options.secret?.reveal() ?? ''
  if (createdSecret === undefined && !options.passwordPattern.test(secret))
    throw new ServiceError('malformed', `SKEIN_ADMIN_SECRET must match ${options.passwordPattern.source}`)
  const secretHash = await hashPassword(secret)
  const isMade = await journal.change('system', async (tx, record) => {
    await lockFirstAdmin(tx)
    if (await hasPlatformAdmin(tx)) return false
    for (const login of [email, username]) {
      if ((await findUserByLogin(tx, login)) === undefined) continue
      throw new ServiceError(
        'invalid_state',
        `failed to create the first administrator: the user "${login}" already exists; set SKEIN_ADMIN_EMAIL and SKEIN_ADMIN_USERNAME to other values`,
      )
    }
    // Written before the commit: a crash in between leaves an extra file, not a lost password.
    if (createdSecret !== undefined) await writeSecret(dataDir, secretFile, createdSecret)
    const user = await insertUser(
      tx,
      {
        id: newId(),
        firstName: null,
        lastName: null,
        name: 'Administrator',
        email,
        username,
        secretHash,
        tags: [],
        metadata: {},
        privateMetadata: {},
        profilePicture: null,
        role: 'admin',
        status: 'enabled',
        createdBy: null,
        // The settings confirm the address, so the first login requires no mail.
        isVerified: true,
      },
      uniqueNames,
    )
    record({ operation: 'user.create', entityKeys: [user.key], attributes: newUserFacts(user) })
    return true
  })
  if (!isMade || createdSecret === undefined) return nothingCreated
  return { username, secretFile, createdSecret }
}

async function writeSecret(dataDir: string, file: string, secret: string): Promise<void> {
  await mkdir(dataDir, { recursive: true })
  await writeFile(file, '', { mode: 0o600 })
  // `mode` applies to new files only.
  await chmod(file, 0o600)
  await writeFile(file, `${secret}\n`)
}

/** Adds the name of the setting to an error of its value. */
function readSetting(name: string, read: () => string): string {
  try {
    return read()
  } catch (error) {
    if (error instanceof ServiceError)
      throw new ServiceError('malformed', `${name}: ${error.message}`, { cause: error })
    throw error
  }
}
