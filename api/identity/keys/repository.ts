/** SQL of API keys. */
import { Keyset, readPage } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'

export type ApiKeyRecord = {
  key: number
  id: string
  userId: string
  domainId: string | null
  issuedAt: string
  expiresAt: string | null
  lastUsedAt: string | null
}

const COLUMNS = sql`k.key, k.id, u.id AS "userId", d.id AS "domainId", k.issued_at AS "issuedAt", k.expires_at AS "expiresAt",
  k.last_used_at AS "lastUsedAt"`
const FROM = sql`api_keys k JOIN users u ON u.key = k.user_key LEFT JOIN domains d ON d.key = k.domain_key`

export type NewApiKeyRow = {
  id: string
  userKey: number
  domainKey: number | undefined
  tokenHash: Buffer
  kid: string
  issuedAtSeconds: number
  expiresAtSeconds: number | undefined
}

/** Undefined when the user has the maximum number of keys. The caller must have locked the row of the user. */
export async function insertApiKey(
  db: Queryable,
  apiKey: NewApiKeyRow,
  maxKeys: number,
): Promise<ApiKeyRecord | undefined> {
  await sql`INSERT INTO api_keys (id, user_key, domain_key, token_hash, kid, issued_at, expires_at)
    SELECT ${apiKey.id}::uuid, u.key, ${apiKey.domainKey ?? null}::bigint, ${apiKey.tokenHash}::bytea, ${apiKey.kid},
           to_timestamp(${apiKey.issuedAtSeconds}), to_timestamp(${apiKey.expiresAtSeconds ?? null}::float8)
      FROM users u WHERE u.key = ${apiKey.userKey} AND (SELECT count(*) FROM api_keys o WHERE o.user_key = u.key) < ${maxKeys}`.execute(
    db,
  )
  return await findApiKey(db, apiKey, apiKey.id)
}

/** Owner of keys: a user, or a user with the keys that are bound to one domain. */
export type KeyOwner = { userKey: number; domainKey: number | undefined }

const ownedBy = ({ userKey, domainKey }: KeyOwner) =>
  domainKey === undefined
    ? sql<boolean>`k.user_key = ${userKey}`
    : sql<boolean>`k.user_key = ${userKey} AND k.domain_key = ${domainKey}`

export async function findApiKey(db: Queryable, owner: KeyOwner, id: string): Promise<ApiKeyRecord | undefined> {
  const { rows } =
    await sql<ApiKeyRecord>`SELECT ${COLUMNS} FROM ${FROM} WHERE ${ownedBy(owner)} AND k.id = ${id}`.execute(db)
  return rows[0]
}

export async function listApiKeys(
  db: Queryable,
  owner: KeyOwner,
  range: PageRange,
): Promise<{ items: ApiKeyRecord[]; next: PageEnd }> {
  const source = { columns: COLUMNS, from: FROM, where: ownedBy(owner), keyset: NEWEST_FIRST }
  const { rows, next } = await readPage<ApiKeyRecord>(db, source, range)
  return { items: rows, next }
}

const NEWEST_FIRST = new Keyset([
  { by: sql`k.issued_at`, type: 'time', dir: 'desc' },
  { by: sql`k.id`, type: 'uuid' },
])

export async function countApiKeys(db: Queryable, owner: KeyOwner): Promise<number> {
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM api_keys k WHERE ${ownedBy(owner)}`.execute(db)
  return rows[0]?.total ?? 0
}

/** Returns the key of the deleted row. Undefined when it did not exist. */
export async function deleteApiKey(db: Queryable, owner: KeyOwner, id: string): Promise<number | undefined> {
  const { rows } = await sql<{
    key: number
  }>`DELETE FROM api_keys k WHERE ${ownedBy(owner)} AND k.id = ${id} RETURNING k.key`.execute(db)
  return rows[0]?.key
}

export async function deleteApiKeysOf(db: Queryable, userKey: number): Promise<void> {
  await sql`DELETE FROM api_keys WHERE user_key = ${userKey}`.execute(db)
}

/** The attributes of a key that authentication requires. */
export type ApiKeyFacts = {
  key: number
  id: string
  userKey: number
  userId: string
  userStatus: 'enabled' | 'disabled' | 'deleted'
  userRole: 'user' | 'admin'
  domainKey: number | null
  tokenHash: Buffer
}

export async function findApiKeyFacts(db: Queryable, id: string): Promise<ApiKeyFacts | undefined> {
  const { rows } = await sql<ApiKeyFacts>`
    SELECT k.key, k.id, k.user_key AS "userKey", u.id AS "userId", u.status AS "userStatus", u.role AS "userRole",
           k.domain_key AS "domainKey", k.token_hash AS "tokenHash"
      FROM api_keys k JOIN users u ON u.key = k.user_key WHERE k.id = ${id}`.execute(db)
  return rows[0]
}

export async function findDomainId(db: Queryable, domainKey: number): Promise<string | undefined> {
  const { rows } = await sql<{ id: string }>`SELECT id FROM domains WHERE key = ${domainKey}`.execute(db)
  return rows[0]?.id
}

/** Removes keys that expired more than a month ago. */
export async function purgeApiKeys(db: Queryable): Promise<void> {
  await sql`DELETE FROM api_keys WHERE expires_at < now() - interval '30 days'`.execute(db)
}
