/** SQL of users. Names of constraints decide which conflict it is. */
import type { Queryable, Transaction } from '#core/database/index.ts'
import { refusing, withinPage } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { orderOf } from '../listing/index.ts'

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
  profilePicture: string | null
  role: 'user' | 'admin'
  status: 'enabled' | 'disabled' | 'deleted'
  createdBy: string | null
  createdAt: string
  updatedBy: string | null
  updatedAt: string | null
  /** When the address was proved to be the user's own; null: it was not, or there is none. */
  verifiedAt: string | null
}

type Row = {
  key: number
  id: string
  first_name: string | null
  last_name: string | null
  name: string | null
  email: string | null
  username: string | null
  secret_hash: string
  tags: string[]
  metadata: Record<string, unknown>
  profile_picture: string | null
  role: UserRecord['role']
  status: UserRecord['status']
  created_by: string | null
  created_at: string
  updated_by: string | null
  updated_at: string | null
  verified_at: string | null
}

function fromRow(row: Row): UserRecord {
  return {
    key: row.key,
    id: row.id,
    firstName: row.first_name,
    lastName: row.last_name,
    name: row.name,
    email: row.email,
    username: row.username,
    secretHash: row.secret_hash,
    tags: row.tags,
    metadata: row.metadata,
    profilePicture: row.profile_picture,
    role: row.role,
    status: row.status,
    createdBy: row.created_by,
    createdAt: row.created_at,
    updatedBy: row.updated_by,
    updatedAt: row.updated_at,
    verifiedAt: row.verified_at,
  }
}

const taken =
  (what: string, hint = '') =>
  () =>
    new ServiceError('conflict', `a user with this ${what} exists already${hint}`)

const CONFLICTS = {
  users_email_key: taken('email'),
  users_username_key: taken('username'),
  user_unique_names_pkey: taken(
    'first or last name',
    '; first and last names are unique unless SKEIN_USERS_UNIQUE_NAMES=false',
  ),
}

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
  | 'profilePicture'
  | 'role'
  | 'status'
  | 'createdBy'
> & { isVerified: boolean }

export async function insertUser(db: Queryable, user: NewUserRow, uniqueNames: boolean): Promise<UserRecord> {
  const { rows } = await refusing(
    CONFLICTS,
    sql<Row>`INSERT INTO users (id, first_name, last_name, name, email, username, secret_hash, tags, metadata, profile_picture, role, status, created_by, verified_at)
      VALUES (${user.id}, ${user.firstName}, ${user.lastName}, ${user.name}, ${user.email}, ${user.username}, ${user.secretHash}, ${user.tags},
              ${JSON.stringify(user.metadata)}::jsonb, ${user.profilePicture}, ${user.role}, ${user.status}, ${user.createdBy},
              CASE WHEN ${user.isVerified} THEN now() END) RETURNING *`.execute(db),
  )
  const record = fromRow(rows[0] as Row)
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
      CONFLICTS,
      sql`INSERT INTO user_unique_names (kind, value, user_key) VALUES (${kind}, ${value}, ${user.key})`.execute(db),
    )
  }
}

/**
 * Makes the table of unique names agree with the switch. Throws `invalid_state` when the switch is on and users exist
 * that share a name.
 */
export async function applyUniqueNamesSwitch(db: Queryable, uniqueNames: boolean): Promise<void> {
  if (!uniqueNames) {
    await sql`DELETE FROM user_unique_names`.execute(db)
    return
  }
  const shared = () =>
    new ServiceError(
      'invalid_state',
      'users exist that share a first or last name: rename them, or start with SKEIN_USERS_UNIQUE_NAMES=false',
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
  const { rows } = await sql<Row>`SELECT * FROM users WHERE id = ${id} AND status <> 'deleted'`.execute(db)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

/** By username or email, in any case. */
export async function findUserByLogin(db: Queryable, login: string): Promise<UserRecord | undefined> {
  const { rows } = await sql<Row>`SELECT * FROM users
    WHERE (lower(email) = lower(${login}) OR lower(username) = lower(${login})) AND status <> 'deleted'`.execute(db)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

/** The user who gets mails at this address, in any case of its letters. */
export async function findUserByEmail(db: Queryable, email: string): Promise<UserRecord | undefined> {
  const { rows } =
    await sql<Row>`SELECT * FROM users WHERE lower(email) = lower(${email}) AND status <> 'deleted'`.execute(db)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

export type UserChange = Partial<
  Pick<
    UserRecord,
    | 'firstName'
    | 'lastName'
    | 'name'
    | 'tags'
    | 'metadata'
    | 'profilePicture'
    | 'email'
    | 'username'
    | 'role'
    | 'status'
    | 'secretHash'
  >
> & { isVerified?: boolean }

/** Writes the given fields of a user who is locked. Deleting says when. */
export async function updateUser(
  tx: Transaction,
  key: number,
  change: UserChange,
  updatedBy: string | undefined,
  uniqueNames: boolean,
): Promise<UserRecord> {
  const sets: Sql<unknown>[] = [sql`updated_at = now()`, sql`updated_by = ${updatedBy ?? null}`]
  if (change.firstName !== undefined) sets.push(sql`first_name = ${change.firstName}`)
  if (change.lastName !== undefined) sets.push(sql`last_name = ${change.lastName}`)
  if (change.name !== undefined) sets.push(sql`name = ${change.name}`)
  if (change.tags !== undefined) sets.push(sql`tags = ${change.tags}`)
  if (change.metadata !== undefined) sets.push(sql`metadata = ${JSON.stringify(change.metadata)}::jsonb`)
  if (change.profilePicture !== undefined) sets.push(sql`profile_picture = ${change.profilePicture}`)
  if (change.email !== undefined) sets.push(sql`email = ${change.email}`)
  if (change.username !== undefined) sets.push(sql`username = ${change.username}`)
  if (change.role !== undefined) sets.push(sql`role = ${change.role}`)
  if (change.secretHash !== undefined) sets.push(sql`secret_hash = ${change.secretHash}`)
  if (change.isVerified !== undefined) sets.push(change.isVerified ? sql`verified_at = now()` : sql`verified_at = NULL`)
  if (change.status !== undefined) {
    sets.push(sql`status = ${change.status}`)
    if (change.status === 'deleted') sets.push(sql`deleted_at = now()`)
  }
  const { rows } = await refusing(
    CONFLICTS,
    sql<Row>`UPDATE users SET ${sql.join(sets)} WHERE key = ${key} RETURNING *`.execute(tx),
  )
  const record = fromRow(rows[0] as Row)
  if (uniqueNames && (change.firstName !== undefined || change.lastName !== undefined)) await claimNames(tx, record)
  return record
}

export type UserListing = {
  where: Sql<boolean>
  order: string
  dir: 'asc' | 'desc'
  offset: number
  limit: number
}

export async function listUsers(
  db: Queryable,
  { where, order, dir, offset, limit }: UserListing,
): Promise<UserRecord[]> {
  const sorted = order === 'name' ? sql`coalesce(u.name, u.first_name) ${sql.raw(dir)}, u.id` : orderOf('u', order, dir)
  const { rows } = await withinPage(
    sql<Row>`SELECT u.* FROM users u WHERE ${where} ORDER BY ${sorted} OFFSET ${offset} LIMIT ${limit}`,
  ).execute(db)
  return rows.map(fromRow)
}

export async function countUsers(db: Queryable, where: Sql<boolean>): Promise<number> {
  const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM users u WHERE ${where}`.execute(db)
  return rows[0]?.total ?? 0
}

/** Two nodes that start at once must not each make an administrator. */
const FIRST_ADMIN_LOCK = 0x5ce1_0003

/** Until the transaction ends, nobody else makes the first administrator. */
export async function lockFirstAdmin(tx: Transaction): Promise<void> {
  await sql`SELECT pg_advisory_xact_lock(${FIRST_ADMIN_LOCK})`.execute(tx)
}

/** Whether any platform administrator exists. */
export async function hasPlatformAdmin(db: Queryable): Promise<boolean> {
  const { rows } = await sql`SELECT 1 FROM users WHERE role = 'admin' AND status = 'enabled' LIMIT 1`.execute(db)
  return rows.length > 0
}

/** The user as he is now, locked until the transaction ends. */
export async function lockUser(tx: Transaction, id: string): Promise<UserRecord | undefined> {
  const { rows } = await sql<Row>`SELECT * FROM users WHERE id = ${id} AND status <> 'deleted' FOR UPDATE`.execute(tx)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

/** Who gives or takes the administration of the platform does it one after the other. */
const PLATFORM_ADMINS_LOCK = 0x5ce1_0008

/** Whether nobody else administers the platform; until the transaction ends nobody else leaves it. */
export async function lockIsSolePlatformAdmin(tx: Transaction, userKey: number): Promise<boolean> {
  await sql`SELECT pg_advisory_xact_lock(${PLATFORM_ADMINS_LOCK})`.execute(tx)
  const { rows } = await sql`SELECT 1 FROM users
    WHERE role = 'admin' AND status = 'enabled' AND key <> ${userKey} LIMIT 1`.execute(tx)
  return rows.length === 0
}

/** Two nodes that purge at once would wait for each other. */
const PURGE_LOCK = 0x5ce1_0009

/** False when another node is at it. */
export async function tryLockPurge(tx: Transaction): Promise<boolean> {
  const { rows } = await sql<{ taken: boolean }>`SELECT pg_try_advisory_xact_lock(${PURGE_LOCK}) AS taken`.execute(tx)
  return rows[0]?.taken === true
}

/** Removes users who were deleted longer ago than the grace, oldest first, and everything that hangs on them. */
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
