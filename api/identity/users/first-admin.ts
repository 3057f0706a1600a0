/** The first platform administrator, made at the first start (decision 48). No default password exists. */
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
  /** Where a random secret is kept, readable by the owner alone. */
  dataDir: string
}

/** What the banner says about it; the secret only at the start that made it, its file for as long as it lies there. */
export type FirstAdmin = { username: string; secretFile: string | undefined; madeSecret: string | undefined }

const SECRET_FILE = 'admin-secret'
const RANDOM_SECRET_BYTES = 18

/**
 * Throws `invalid_state` when the email or username belongs to somebody who does not administer the platform, and
 * `malformed` naming the setting that cannot be used.
 */
export async function ensureFirstAdmin(options: FirstAdminOptions): Promise<FirstAdmin> {
  const { database, journal, uniqueNames, dataDir } = options
  const secretFile = join(dataDir, SECRET_FILE)
  const nothingMade: FirstAdmin = { username: options.username, secretFile: undefined, madeSecret: undefined }
  if (await hasPlatformAdmin(database.db))
    return { ...nothingMade, secretFile: existsSync(secretFile) ? secretFile : undefined }
  const email = readSetting('SKEIN_ADMIN_EMAIL', () => requireEmail(options.email))
  const username = readSetting('SKEIN_ADMIN_USERNAME', () => requireUsername(options.username))
  const madeSecret = options.secret === undefined ? newToken(RANDOM_SECRET_BYTES) : undefined
  const secret = madeSecret ?? options.secret?.reveal() ?? ''
  if (madeSecret === undefined && !options.passwordPattern.test(secret))
    throw new ServiceError(
      'malformed',
      `SKEIN_ADMIN_SECRET is too weak: it must match ${options.passwordPattern.source}`,
    )
  const secretHash = await hashPassword(secret)
  const isMade = await journal.change('system', async (tx, record) => {
    await lockFirstAdmin(tx)
    if (await hasPlatformAdmin(tx)) return false
    for (const login of [email, username]) {
      if ((await findUserByLogin(tx, login)) === undefined) continue
      throw new ServiceError(
        'invalid_state',
        `the first administrator cannot be made: a user "${login}" exists and is not promoted; set SKEIN_ADMIN_EMAIL and SKEIN_ADMIN_USERNAME to others`,
      )
    }
    // Before the commit, so that a crash between the two leaves a file too many rather than a lost password.
    if (madeSecret !== undefined) await writeSecret(dataDir, secretFile, madeSecret)
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
        profilePicture: null,
        role: 'admin',
        status: 'enabled',
        createdBy: null,
        // The settings say that the address is his; no mail need leave before the first sign-in.
        isVerified: true,
      },
      uniqueNames,
    )
    record({ operation: 'user.create', entityKeys: [user.key], attributes: newUserFacts(user) })
    return true
  })
  if (!isMade || madeSecret === undefined) return nothingMade
  return { username, secretFile, madeSecret }
}

async function writeSecret(dataDir: string, file: string, secret: string): Promise<void> {
  await mkdir(dataDir, { recursive: true })
  await writeFile(file, '', { mode: 0o600 })
  // The mode above counts for a new file only.
  await chmod(file, 0o600)
  await writeFile(file, `${secret}\n`)
}

/** A refusal of the value as a refusal of the setting that it comes from. */
function readSetting(name: string, read: () => string): string {
  try {
    return read()
  } catch (error) {
    if (error instanceof ServiceError)
      throw new ServiceError('malformed', `${name}: ${error.message}`, { cause: error })
    throw error
  }
}
