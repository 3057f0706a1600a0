/** SQL of personal access tokens and their scopes. */
import { Keyset, readPage, refusing } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { takenField } from '#core/errors/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { Scope, ScopeEntityType, ScopeOperation } from '../access/index.ts'
import type { PatRecord, PatStatus, ScopeRecord } from './record.ts'

const STATUS = sql<PatStatus>`CASE WHEN p.revoked_at IS NOT NULL THEN 'revoked' WHEN p.expires_at <= now() THEN 'expired' ELSE 'active' END`
const RECORD = sql`p.key, p.id, (SELECT u.id FROM users u WHERE u.key = p.user_key) AS "userId", p.name, p.description,
  p.issued_at AS "issuedAt", p.expires_at AS "expiresAt", p.updated_at AS "updatedAt", p.last_used_at AS "lastUsedAt",
  p.revoked_at AS "revokedAt", ${STATUS} AS status`

export type NewPatRow = {
  id: string
  userKey: number
  name: string
  description: string
  secretHash: Buffer
  lifetimeSeconds: number
}

/** Undefined when the user has the maximum number of tokens. The caller must have locked the row of the user. */
export async function insertPat(db: Queryable, pat: NewPatRow, maxPats: number): Promise<PatRecord | undefined> {
  const { rows } = await sql<PatRecord>`INSERT INTO pats AS p (id, user_key, name, description, secret_hash, expires_at)
      SELECT ${pat.id}::uuid, u.key, ${pat.name}, ${pat.description}, ${pat.secretHash}::bytea, now() + make_interval(secs => ${pat.lifetimeSeconds})
        FROM users u WHERE u.key = ${pat.userKey} AND (SELECT count(*) FROM pats o WHERE o.user_key = u.key) < ${maxPats}
      RETURNING ${RECORD}`.execute(db)
  return rows[0]
}

export async function findPat(
  db: Queryable,
  userKey: number,
  id: string,
  options: { forUpdate?: boolean } = {},
): Promise<PatRecord | undefined> {
  const lock = options.forUpdate === true ? sql`FOR NO KEY UPDATE OF p` : sql``
  const { rows } =
    await sql<PatRecord>`SELECT ${RECORD} FROM pats p WHERE p.user_key = ${userKey} AND p.id = ${id} ${lock}`.execute(
      db,
    )
  return rows[0]
}

export type PatListing = PageRange & { where: Sql<boolean>; dir: 'asc' | 'desc' }

export function ofStatus(status: PatStatus): Sql<boolean> {
  return sql<boolean>`${STATUS} = ${status}`
}

export async function countPats(db: Queryable, where: Sql<boolean>): Promise<number> {
  const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM pats p WHERE ${where}`.execute(db)
  return rows[0]?.total ?? 0
}

export async function listPats(
  db: Queryable,
  { where, dir, ...range }: PatListing,
): Promise<{ items: PatRecord[]; next: PageEnd }> {
  const keyset = new Keyset([
    { by: sql`p.issued_at`, type: 'time', dir },
    { by: sql`p.id`, type: 'uuid' },
  ])
  const { rows, next } = await readPage<PatRecord>(db, { columns: RECORD, from: sql`pats p`, where, keyset }, range)
  return { items: rows, next }
}

export type PatChange = {
  name?: string
  description?: string
  /** A new secret also reverses an earlier revocation. */
  secret?: { hash: Buffer; lifetimeSeconds: number }
  isRevoked?: true
}

export async function updatePat(db: Queryable, key: number, change: PatChange): Promise<void> {
  const sets = [sql`updated_at = now()`]
  if (change.name !== undefined) sets.push(sql`name = ${change.name}`)
  if (change.description !== undefined) sets.push(sql`description = ${change.description}`)
  if (change.secret !== undefined)
    sets.push(
      sql`secret_hash = ${change.secret.hash}, expires_at = now() + make_interval(secs => ${change.secret.lifetimeSeconds}), revoked_at = NULL`,
    )
  if (change.isRevoked === true) sets.push(sql`revoked_at = coalesce(revoked_at, now())`)
  await sql`UPDATE pats SET ${sql.join(sets)} WHERE key = ${key}`.execute(db)
}

export async function deletePats(db: Queryable, keys: readonly number[]): Promise<void> {
  await sql`DELETE FROM pats WHERE key = ANY (${keys}::bigint[])`.execute(db)
}

export async function revokePatsOf(db: Queryable, userKey: number): Promise<void> {
  await sql`UPDATE pats SET revoked_at = now(), updated_at = now() WHERE user_key = ${userKey} AND revoked_at IS NULL`.execute(
    db,
  )
}

/** Returns every token of the user, locked. */
export async function lockPatsOf(db: Queryable, userKey: number): Promise<{ key: number; id: string }[]> {
  const { rows } = await sql<{
    key: number
    id: string
  }>`SELECT key, id FROM pats WHERE user_key = ${userKey} ORDER BY key FOR UPDATE`.execute(db)
  return rows
}

/** The attributes of a token that authentication requires. */
export type PatFacts = {
  key: number
  id: string
  userKey: number
  userId: string
  userStatus: 'enabled' | 'disabled' | 'deleted'
  secretHash: Buffer
  expiresAtMs: number
  isRevoked: boolean
  scopes: Scope[]
}

type ScopeFactsRow = {
  entity_type: ScopeEntityType
  operation: ScopeOperation
  domain_key: number | null
  entity_id: string | null
  entity_key: number | null
}

/** No entity has this key, so a scope on an unknown entity covers nothing. */
const NO_ENTITY = -1

export async function findPatFacts(db: Queryable, id: string): Promise<PatFacts | undefined> {
  const { rows } = await sql<Omit<PatFacts, 'scopes'>>`
    SELECT p.key, p.id, p.user_key AS "userKey", u.id AS "userId", u.status AS "userStatus", p.secret_hash AS "secretHash",
           (extract(epoch FROM p.expires_at) * 1000)::float8 AS "expiresAtMs", p.revoked_at IS NOT NULL AS "isRevoked"
      FROM pats p JOIN users u ON u.key = p.user_key WHERE p.id = ${id}`.execute(db)
  const row = rows[0]
  if (row === undefined) return undefined
  const { rows: scopes } =
    await sql<ScopeFactsRow>`SELECT entity_type, operation, domain_key, entity_id, entity_key FROM pat_scopes WHERE pat_key = ${row.key}`.execute(
      db,
    )
  return {
    ...row,
    scopes: scopes.map((scope) => ({
      type: scope.entity_type,
      operation: scope.operation,
      domainKey: scope.domain_key ?? undefined,
      entity: scope.entity_id === null ? 'any' : { key: scope.entity_key ?? NO_ENTITY, id: scope.entity_id },
    })),
  }
}

export type NewScopeRow = {
  id: string
  type: ScopeEntityType
  operation: ScopeOperation
  domainKey: number | null
  entityId: string | null
  entityKey: number | null
}

/** Throws `conflict` when the token already has one of the scopes. */
export async function insertScopes(db: Queryable, patKey: number, scopes: readonly NewScopeRow[]): Promise<void> {
  await refusing(
    {
      pat_scopes_scope_key: () =>
        takenField(
          '/scopes',
          'entity already exists: the token already has one of these scopes',
          'contain one of the token',
        ),
    },
    sql`INSERT INTO pat_scopes (pat_key, id, entity_type, operation, domain_key, entity_id, entity_key)
      SELECT ${patKey}, * FROM unnest(
        ${scopes.map((scope) => scope.id)}::uuid[], ${scopes.map((scope) => scope.type)}::text[],
        ${scopes.map((scope) => scope.operation)}::text[], ${scopes.map((scope) => scope.domainKey)}::bigint[],
        ${scopes.map((scope) => scope.entityId)}::uuid[], ${scopes.map((scope) => scope.entityKey)}::bigint[])`.execute(
      db,
    ),
  )
}

export async function countScopes(db: Queryable, patKey: number): Promise<number> {
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM pat_scopes WHERE pat_key = ${patKey}`.execute(db)
  return rows[0]?.total ?? 0
}

export async function listScopes(
  db: Queryable,
  patKey: number,
  range: PageRange,
): Promise<{ items: ScopeRecord[]; next: PageEnd }> {
  const source = {
    columns: sql`s.id, p.id AS "patId", s.entity_type AS type, s.operation, d.id AS "domainId", s.entity_id AS "entityId"`,
    from: sql`pat_scopes s JOIN pats p ON p.key = s.pat_key LEFT JOIN domains d ON d.key = s.domain_key`,
    where: sql<boolean>`s.pat_key = ${patKey}`,
    keyset: new Keyset([{ by: sql`s.key`, type: 'number' }]),
  }
  const { rows, next } = await readPage<ScopeRecord>(db, source, range)
  return { items: rows, next }
}

/** Returns the ids of the removed scopes. Without `ids` it removes all scopes. */
export async function deleteScopes(
  db: Queryable,
  patKey: number,
  ids: readonly string[] | undefined,
): Promise<string[]> {
  const some = ids === undefined ? sql`` : sql`AND id = ANY (${ids}::uuid[])`
  const { rows } = await sql<{
    id: string
  }>`DELETE FROM pat_scopes WHERE pat_key = ${patKey} ${some} RETURNING id`.execute(db)
  return rows.map((row) => row.id)
}

export type NamedEntity = { key: number; id: string }

/** Returns the entities of a domain with these ids that match `isReadable`. */
export async function findNamed(
  db: Queryable,
  table: 'clients' | 'channels' | 'groups',
  domainKey: number,
  ids: readonly string[],
  isReadable: Sql<boolean>,
): Promise<NamedEntity[]> {
  const { rows } = await sql<NamedEntity>`SELECT e.key, e.id FROM ${sql.table(table)} e
     WHERE e.domain_key = ${domainKey} AND e.id = ANY (${ids}::uuid[]) AND ${isReadable}`.execute(db)
  return rows
}

export async function findNamedUsers(db: Queryable, ids: readonly string[]): Promise<NamedEntity[]> {
  const { rows } =
    await sql<NamedEntity>`SELECT key, id FROM users WHERE id = ANY (${ids}::uuid[]) AND status <> 'deleted'`.execute(
      db,
    )
  return rows
}
