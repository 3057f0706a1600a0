/** SQL of users. The names of constraints determine the conflict. */
import type { ColumnsOf, Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import { Keyset, assigned, readPage, refusing, selected } from '#core/database/index.ts'
import { ServiceError, takenField } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { PageRange } from '#core/page.ts'
import { orderedBy } from '../listing/index.ts'

export type UserRecord = {
  key: number
  id: string
  firstName: string | null
  lastName: string | null
  name: string | null
  email: string | null
  username: string | null
  secretHash: string
  tags: string[]
  metadata: Record<string, unknown>
  privateMetadata: Record<string, unknown>
  profilePicture: string | null
  role: 'user' | 'admin'
  status: 'enabled' | 'disabled' | 'deleted'
  createdBy: string | null
  createdAt: string
  updatedBy: string | null
  updatedAt: string | null
  /** Time of the verification of the address. Null when it is not verified, or without an address. */
  verifiedAt: string | null
}

const COLUMNS = {
  key: 'key',
  id: 'id',
  firstName: 'first_name',
  lastName: 'last_name',
  name: 'name',
  email: 'email',
  username: 'username',
  secretHash: 'secret_hash',
  tags: 'tags',
  metadata: 'metadata',
  privateMetadata: 'private_metadata',
  profilePicture: 'profile_picture',
  role: 'role',
  status: 'status',
  createdBy: 'created_by',
  createdAt: 'created_at',
  updatedBy: 'updated_by',
  updatedAt: 'updated_at',
  verifiedAt: 'verified_at',
} satisfies ColumnsOf<UserRecord>

const RECORD = selected(COLUMNS, 'u')

/** `usernamePath`: where the body has the username, which is another place at creation. */
const conflictsOf = (usernamePath: string) => ({
  users_email_key: () => takenField('/email', 'a user with this email already exists'),
  users_username_key: () => takenField(usernamePath, 'a user with this username already exists'),
})
const CREATION_CONFLICTS = conflictsOf('/credentials/username')
const CHANGE_CONFLICTS = conflictsOf('/username')

const nameTaken = (kind: 'first_name' | 'last_name') =>
  takenField(
    `/${kind}`,
    'a user with this first or last name already exists; first and last names are unique unless SKEIN_USERS_UNIQUE_NAMES=false',
  )

export type NewUserRow = Pick<
  UserRecord,
  | 'id'
  | 'firstName'
  | 'lastName'
  | 'name'
  | 'email'
  | 'username'
  | 'secretHash'
  | 'tags'
  | 'metadata'
  | 'privateMetadata'
  | 'profilePicture'
  | 'role'
  | 'status'
  | 'createdBy'
> & { isVerified: boolean }

export async function insertUser(db: Queryable, user: NewUserRow, uniqueNames: boolean): Promise<UserRecord> {
  const { rows } = await refusing(
    CREATION_CONFLICTS,
    sql<UserRecord>`INSERT INTO users AS u (id, first_name, last_name, name, email, username, secret_hash, tags, metadata, private_metadata, profile_picture, role, status, created_by, verified_at)
      VALUES (${user.id}, ${user.firstName}, ${user.lastName}, ${user.name}, ${user.email}, ${user.username}, ${user.secretHash}, ${user.tags},
              ${JSON.stringify(user.metadata)}::jsonb, ${JSON.stringify(user.privateMetadata)}::jsonb, ${user.profilePicture}, ${user.role}, ${user.status}, ${user.createdBy},
              CASE WHEN ${user.isVerified} THEN now() END) RETURNING ${RECORD}`.execute(db),
  )
  const record = rows[0] as UserRecord
  if (uniqueNames) await claimNames(db, record)
  return record
}

async function claimNames(db: Queryable, user: UserRecord): Promise<void> {
  await sql`DELETE FROM user_unique_names WHERE user_key = ${user.key}`.execute(db)
  for (const [kind, value] of [
    ['first_name', user.firstName],
    ['last_name', user.lastName],
  ] as const) {
    if (value === null) continue
    await refusing(
      { user_unique_names_pkey: () => nameTaken(kind) },
      sql`INSERT INTO user_unique_names (kind, value, user_key) VALUES (${kind}, ${value}, ${user.key})`.execute(db),
    )
  }
}

/**
 * Synchronizes the table of unique names with the setting. Throws `invalid_state` when the setting is enabled and users
 * share a name.
 */
export async function applyUniqueNamesSwitch(db: Queryable, uniqueNames: boolean): Promise<void> {
  if (!uniqueNames) {
    await sql`DELETE FROM user_unique_names`.execute(db)
    return
  }
  const shared = () =>
    new ServiceError(
      'invalid_state',
      'users share a first or last name: rename them, or set SKEIN_USERS_UNIQUE_NAMES=false',
    )
  await refusing(
    { user_unique_names_pkey: shared },
    sql`INSERT INTO user_unique_names (kind, value, user_key)
      SELECT names.kind, names.value, u.key FROM users u
        CROSS JOIN LATERAL (VALUES ('first_name', u.first_name), ('last_name', u.last_name)) names (kind, value)
       WHERE names.value IS NOT NULL
         AND NOT EXISTS (SELECT 1 FROM user_unique_names n WHERE n.user_key = u.key AND n.kind = names.kind)`.execute(
      db,
    ),
  )
}

export async function findUser(db: Queryable, id: string): Promise<UserRecord | undefined> {
  const { rows } =
    await sql<UserRecord>`SELECT ${RECORD} FROM users u WHERE id = ${id} AND status <> 'deleted'`.execute(db)
  return rows[0]
}

/** Finds a user by username or email, case-insensitively. */
export async function findUserByLogin(db: Queryable, login: string): Promise<UserRecord | undefined> {
  const { rows } = await sql<UserRecord>`SELECT ${RECORD} FROM users u
    WHERE (lower(email) = lower(${login}) OR lower(username) = lower(${login})) AND status <> 'deleted'`.execute(db)
  return rows[0]
}

/** Finds a user by email, case-insensitively. */
export async function findUserByEmail(db: Queryable, email: string): Promise<UserRecord | undefined> {
  const { rows } =
    await sql<UserRecord>`SELECT ${RECORD} FROM users u WHERE lower(email) = lower(${email}) AND status <> 'deleted'`.execute(
      db,
    )
  return rows[0]
}

export type UserChange = Partial<
  Pick<
    UserRecord,
    | 'firstName'
    | 'lastName'
    | 'name'
    | 'tags'
    | 'metadata'
    | 'privateMetadata'
    | 'profilePicture'
    | 'email'
    | 'username'
    | 'role'
    | 'status'
    | 'secretHash'
  >
> & { isVerified?: boolean }

/** Writes the given fields of a locked user. The status `deleted` also sets the time of deletion. */
export async function updateUser(
  tx: Transaction,
  key: number,
  change: UserChange,
  updatedBy: string | undefined,
  uniqueNames: boolean,
): Promise<UserRecord> {
  const { isVerified, ...fields } = change
  const sets = [sql`updated_at = now()`, sql`updated_by = ${updatedBy ?? null}`, ...assigned(fields, COLUMNS)]
  if (isVerified !== undefined) sets.push(isVerified ? sql`verified_at = now()` : sql`verified_at = NULL`)
  if (change.status === 'deleted') sets.push(sql`deleted_at = now()`)
  const { rows } = await refusing(
    CHANGE_CONFLICTS,
    sql<UserRecord>`UPDATE users u SET ${sql.join(sets)} WHERE key = ${key} RETURNING ${RECORD}`.execute(tx),
  )
  const record = rows[0] as UserRecord
  if (uniqueNames && (change.firstName !== undefined || change.lastName !== undefined)) await claimNames(tx, record)
  return record
}

export type UserListing = PageRange & { where: Sql<boolean>; order: string; dir: 'asc' | 'desc' }

/** Throws `malformed` for a cursor of another order. */
export async function listUsers(
  db: Queryable,
  { where, order, dir, ...range }: UserListing,
): Promise<{ items: UserRecord[]; next: PageEnd }> {
  const keyset = order === 'name' ? byName(dir) : orderedBy('u', order, dir)
  const { rows, next } = await readPage<UserRecord>(db, { columns: RECORD, from: sql`users u`, where, keyset }, range)
  return { items: rows, next }
}

/** Users without a name follow the others, or precede them with `desc`. */
function byName(dir: 'asc' | 'desc'): Keyset {
  const name = sql`coalesce(u.name, u.first_name)`
  return new Keyset([
    { by: sql`(${name} IS NULL)`, type: 'boolean', dir },
    { by: sql`coalesce(${name}, '')`, type: 'text', dir },
    { by: sql`u.id`, type: 'uuid' },
  ])
}

export async function countUsers(db: Queryable, where: Sql<boolean>): Promise<number> {
  const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM users u WHERE ${where}`.execute(db)
  return rows[0]?.total ?? 0
}

/** Advisory lock, so that two nodes do not create the first administrator concurrently. */
const FIRST_ADMIN_LOCK = 0x5ce1_0003

/** Prevents other transactions from creating the first administrator until this one ends. */
export async function lockFirstAdmin(tx: Transaction): Promise<void> {
  await sql`SELECT pg_advisory_xact_lock(${FIRST_ADMIN_LOCK})`.execute(tx)
}

/** True when a platform administrator exists. */
export async function hasPlatformAdmin(db: Queryable): Promise<boolean> {
  const { rows } = await sql`SELECT 1 FROM users WHERE role = 'admin' AND status = 'enabled' LIMIT 1`.execute(db)
  return rows.length > 0
}

/** Returns the user, locked until the transaction ends. */
export async function lockUser(tx: Transaction, id: string): Promise<UserRecord | undefined> {
  const { rows } =
    await sql<UserRecord>`SELECT ${RECORD} FROM users u WHERE id = ${id} AND status <> 'deleted' FOR UPDATE`.execute(tx)
  return rows[0]
}

/** Advisory lock that serializes changes of platform administrators. */
const PLATFORM_ADMINS_LOCK = 0x5ce1_0008

/** True when there is no other platform administrator. The number cannot decrease until the transaction ends. */
export async function lockIsSolePlatformAdmin(tx: Transaction, userKey: number): Promise<boolean> {
  await sql`SELECT pg_advisory_xact_lock(${PLATFORM_ADMINS_LOCK})`.execute(tx)
  const { rows } = await sql`SELECT 1 FROM users
    WHERE role = 'admin' AND status = 'enabled' AND key <> ${userKey} LIMIT 1`.execute(tx)
  return rows.length === 0
}

/** Advisory lock, so that one node purges at a time. */
const PURGE_LOCK = 0x5ce1_0009

/** Returns false when another node holds the lock. */
export async function tryLockPurge(tx: Transaction): Promise<boolean> {
  const { rows } = await sql<{ taken: boolean }>`SELECT pg_try_advisory_xact_lock(${PURGE_LOCK}) AS taken`.execute(tx)
  return rows[0]?.taken === true
}

/** Removes users who were deleted before the grace period, oldest first, with all dependent rows. */
export async function purgeUsers(
  tx: Transaction,
  graceHours: number,
  limit: number,
): Promise<{ key: number; id: string }[]> {
  const { rows } = await sql<{ key: number; id: string }>`DELETE FROM users WHERE key IN (
      SELECT key FROM users WHERE status = 'deleted' AND deleted_at < now() - make_interval(hours => ${graceHours})
       ORDER BY deleted_at, key LIMIT ${limit})
    RETURNING key, id`.execute(tx)
  return rows
}
