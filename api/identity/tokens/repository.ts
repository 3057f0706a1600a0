/** SQL of sessions. */
import { withinPage } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

export type Session = {
  id: string
  userKey: number
  userId: string
  userStatus: 'enabled' | 'disabled' | 'deleted'
  userRole: 'user' | 'admin'
  domainKey: number | null
  domainId: string | null
  generation: number
  /** Neither revoked nor expired. */
  isAlive: boolean
}

type Row = {
  id: string
  user_key: number
  user_id: string
  user_status: Session['userStatus']
  user_role: Session['userRole']
  domain_key: number | null
  domain_id: string | null
  generation: number
  is_alive: boolean
}

/** As the session itself is, bound to the domain of its last refresh; locked until the transaction ends. */
export async function lockSession(tx: Transaction, id: string): Promise<Session | undefined> {
  return await select(tx, id, {
    domain: sql`d.key = s.domain_key`,
    isBound: sql`s.domain_key IS NOT NULL`,
    lock: sql`FOR UPDATE OF s`,
  })
}

/** As one of its access tokens is: a session that was refreshed into another domain takes no older token along (decision 40). */
export async function findSessionOfToken(
  db: Queryable,
  id: string,
  domainId: string | undefined,
): Promise<Session | undefined> {
  return await select(db, id, {
    domain: sql`d.id = ${domainId ?? null}::uuid`,
    isBound: sql`${domainId !== undefined}::boolean`,
    lock: sql``,
  })
}

/** What is bound to a domain that is gone is dead: nothing makes it good for everything. */
async function select(
  db: Queryable,
  id: string,
  { domain, isBound, lock }: { domain: Sql<unknown>; isBound: Sql<unknown>; lock: Sql<unknown> },
): Promise<Session | undefined> {
  const { rows } = await sql<Row>`
    SELECT s.id, s.user_key, u.id AS user_id, u.status AS user_status, u.role AS user_role, d.key AS domain_key, d.id AS domain_id,
           s.generation, s.revoked_at IS NULL AND s.expires_at > now() AND (d.key IS NOT NULL OR NOT (${isBound})) AS is_alive
      FROM sessions s JOIN users u ON u.key = s.user_key LEFT JOIN domains d ON ${domain}
     WHERE s.id = ${id} ${lock}`.execute(db)
  const row = rows[0]
  if (row === undefined) return undefined
  return {
    id: row.id,
    userKey: row.user_key,
    userId: row.user_id,
    userStatus: row.user_status,
    userRole: row.user_role,
    domainKey: row.domain_key,
    domainId: row.domain_id,
    generation: row.generation,
    isAlive: row.is_alive,
  }
}

export type NewSession = {
  id: string
  userKey: number
  /** As it was when the password was verified. */
  secretHash: string
  domainKey: number | undefined
  lifetimeSeconds: number
  address: string | undefined
  userAgent: string | undefined
}

/** False when the user was disabled or given another password since it was looked up; his sessions were ended by then. */
export async function insertSession(db: Queryable, session: NewSession): Promise<boolean> {
  const { rows } = await sql`INSERT INTO sessions (id, user_key, domain_key, expires_at, address, user_agent)
    SELECT ${session.id}::uuid, key, ${session.domainKey ?? null}::bigint, now() + make_interval(secs => ${session.lifetimeSeconds}), ${session.address ?? null}, ${session.userAgent ?? null}
      FROM users WHERE key = ${session.userKey} AND status = 'enabled' AND secret_hash = ${session.secretHash} FOR SHARE
    RETURNING id`.execute(db)
  return rows.length > 0
}

/** Makes every earlier refresh token of the session an old one. */
export async function advanceSession(
  db: Queryable,
  id: string,
  domainKey: number | undefined,
  lifetimeSeconds: number,
): Promise<void> {
  await sql`UPDATE sessions SET generation = generation + 1, last_used_at = now(), domain_key = ${domainKey ?? null},
      expires_at = now() + make_interval(secs => ${lifetimeSeconds}) WHERE id = ${id}`.execute(db)
}

export async function revokeSession(db: Queryable, id: string): Promise<void> {
  await sql`UPDATE sessions SET revoked_at = now() WHERE id = ${id} AND revoked_at IS NULL`.execute(db)
}

/** Ends every session of a user but one. */
export async function revokeSessionsOf(db: Queryable, userKey: number, except?: string): Promise<void> {
  await sql`UPDATE sessions SET revoked_at = now() WHERE user_key = ${userKey} AND revoked_at IS NULL AND id IS DISTINCT FROM ${except ?? null}::uuid`.execute(
    db,
  )
}

/**
 * Locks the user and says whether this login of his has not been ended: what makes a lasting credential asks here, in its
 * transaction, so that nothing outlives a password reset that was committed meanwhile.
 */
export async function isLiveLogin(tx: Transaction, userKey: number, sessionId: string | undefined): Promise<boolean> {
  await sql`SELECT 1 FROM users WHERE key = ${userKey} FOR NO KEY UPDATE`.execute(tx)
  const { rows } = await sql`SELECT 1 FROM sessions
    WHERE id = ${sessionId ?? null}::uuid AND user_key = ${userKey} AND revoked_at IS NULL`.execute(tx)
  return rows.length > 0
}

/** A login as its user sees it. */
export type SessionRecord = {
  id: string
  address: string | null
  userAgent: string | null
  domainId: string | null
  createdAt: string
  lastUsedAt: string
  expiresAt: string
}

const ALIVE = sql`s.revoked_at IS NULL AND s.expires_at > now()`

export async function countSessions(db: Queryable, userKey: number): Promise<number> {
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM sessions s WHERE s.user_key = ${userKey} AND ${ALIVE}`.execute(db)
  return rows[0]?.total ?? 0
}

export async function listSessions(
  db: Queryable,
  userKey: number,
  page: { offset: number; limit: number },
): Promise<SessionRecord[]> {
  const { rows } = await withinPage(sql<{
    id: string
    address: string | null
    user_agent: string | null
    domain_id: string | null
    created_at: string
    last_used_at: string
    expires_at: string
  }>`SELECT s.id, s.address, s.user_agent, d.id AS domain_id, s.created_at, s.last_used_at, s.expires_at
       FROM sessions s LEFT JOIN domains d ON d.key = s.domain_key
      WHERE s.user_key = ${userKey} AND ${ALIVE} ORDER BY s.created_at DESC, s.id OFFSET ${page.offset} LIMIT ${page.limit}`).execute(
    db,
  )
  return rows.map((row) => ({
    id: row.id,
    address: row.address,
    userAgent: row.user_agent,
    domainId: row.domain_id,
    createdAt: row.created_at,
    lastUsedAt: row.last_used_at,
    expiresAt: row.expires_at,
  }))
}

/** Removes sessions that ended longer than a day ago, so that the table stays as large as its use. */
export async function purgeSessions(db: Queryable): Promise<void> {
  await sql`DELETE FROM sessions WHERE expires_at < now() - interval '1 day' OR revoked_at < now() - interval '1 day'`.execute(
    db,
  )
}

/** The key of a domain that this user may bind a token to: one in which he has a role. */
export async function findMembership(db: Queryable, userKey: number, domainId: string): Promise<number | undefined> {
  const { rows } = await sql<{
    key: number
  }>`SELECT d.key FROM domains d WHERE d.id = ${domainId} AND d.status <> 'deleted'
    AND EXISTS (SELECT 1 FROM grants g WHERE g.user_key = ${userKey} AND g.domain_key = d.key AND g.entity_type = 'domain')`.execute(
    db,
  )
  return rows[0]?.key
}
