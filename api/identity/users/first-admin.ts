/** The first platform administrator, made at the first start (decision 48). No default password exists. */
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import type { Secret } from '#core/config/index.ts'
import { newId, newToken } from '#core/ids.ts'
import type { Database } from '#core/database/index.ts'
import type { Journal } from '../journal/index.ts'
import { hashPassword } from '../passwords/index.ts'
import { requireEmail, requireUsername } from './identity.ts'
import { findUserByLogin, hasPlatformAdmin, insertUser } from './repository.ts'

export type FirstAdminOptions = {
  database: Database
  journal: Journal
  email: string
  username: string
  secret: Secret | undefined
  uniqueNames: boolean
  /** Where a random secret is kept, readable by the owner alone. */
  dataDir: string
}

/** What the banner says about it; the secret only at the start that made it. */
export type FirstAdmin = { username: string; secretFile: string | undefined; madeSecret: string | undefined }

const SECRET_FILE = 'admin-secret'
const RANDOM_SECRET_BYTES = 18

/** Throws `invalid_state` when the email or username belongs to somebody who does not administer the platform. */
export async function ensureFirstAdmin(options: FirstAdminOptions): Promise<FirstAdmin> {
  const { database, journal, email, username, uniqueNames, dataDir } = options
  const secretFile = join(dataDir, SECRET_FILE)
  if (await hasPlatformAdmin(database.db)) return { username, secretFile: undefined, madeSecret: undefined }
  for (const login of [email, username]) {
    if ((await findUserByLogin(database.db, login)) !== undefined) {
      throw new ServiceError(
        'invalid_state',
        `the first administrator cannot be made: a user "${login}" exists and is not promoted; set SKEIN_ADMIN_EMAIL and SKEIN_ADMIN_USERNAME to others`,
      )
    }
  }
  const madeSecret = options.secret === undefined ? newToken(RANDOM_SECRET_BYTES) : undefined
  const secret = madeSecret ?? options.secret?.reveal() ?? ''
  if (madeSecret !== undefined) {
    // Before the user exists, so that a crash between the two leaves a file too many rather than a lost password.
    await mkdir(dataDir, { recursive: true })
    await writeFile(secretFile, `${madeSecret}\n`, { mode: 0o600 })
  }
  const secretHash = await hashPassword(secret)
  await journal.change('system', async (tx, record) => {
    const user = await insertUser(
      tx,
      {
        id: newId(),
        firstName: null,
        lastName: null,
        name: 'Administrator',
        email: requireEmail(email),
        username: requireUsername(username),
        secretHash,
        tags: [],
        metadata: {},
        profilePicture: null,
        role: 'admin',
        status: 'enabled',
        createdBy: null,
      },
      uniqueNames,
    )
    record({ operation: 'user.create', entityKeys: [user.key], attributes: { id: user.id, username, role: 'admin' } })
  })
  return { username, secretFile: madeSecret === undefined ? undefined : secretFile, madeSecret }
}
