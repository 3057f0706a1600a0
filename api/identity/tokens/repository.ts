/** SQL of sessions. */
import { Keyset, readPage } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
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
  /** True if it is not revoked and not expired. */
  isAlive: boolean
}

/** Returns the session with the domain of its last refresh, locked until the transaction ends. */
export async function lockSession(tx: Transaction, id: string): Promise<Session | undefined> {
  return await select(tx, id, {
    domain: sql`d.key = s.domain_key`,
    isBound: sql`s.domain_key IS NOT NULL`,
    lock: sql`FOR UPDATE OF s`,
  })
}

/**
 * Returns the session with the domain of an access token: a refresh into another domain does not change older tokens
 * (decision 40).
 */
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

/** A session that is bound to a removed domain is invalid; it must not become valid for all domains. */
async function select(
  db: Queryable,
  id: string,
  { domain, isBound, lock }: { domain: Sql<unknown>; isBound: Sql<unknown>; lock: Sql<unknown> },
): Promise<Session | undefined> {
  const { rows } = await sql<Session>`
    SELECT s.id, s.user_key AS "userKey", u.id AS "userId", u.status AS "userStatus", u.role AS "userRole", d.key AS "domainKey",
           d.id AS "domainId", s.generation,
           s.revoked_at IS NULL AND s.expires_at > now() AND (d.key IS NOT NULL OR NOT (${isBound})) AS "isAlive"
      FROM sessions s JOIN users u ON u.key = s.user_key LEFT JOIN domains d ON ${domain}
     WHERE s.id = ${id} ${lock}`.execute(db)
  return rows[0]
}

export type NewSession = {
  id: string
  userKey: number
  /** The hash that the password was verified with. */
  secretHash: string
  domainKey: number | undefined
  lifetimeSeconds: number
  /** SHA-256 of the cookie of a browser; undefined for a login with tokens. */
  cookieHash: Buffer | undefined
  address: string | undefined
  userAgent: string | undefined
}

/** Returns false when the user was disabled or got another password since the look-up, which ended their sessions. */
export async function insertSession(db: Queryable, session: NewSession): Promise<boolean> {
  const { rows } =
    await sql`INSERT INTO sessions (id, user_key, domain_key, expires_at, cookie_hash, address, user_agent)
    SELECT ${session.id}::uuid, key, ${session.domainKey ?? null}::bigint, now() + make_interval(secs => ${session.lifetimeSeconds}), ${session.cookieHash ?? null}::bytea, ${session.address ?? null}, ${session.userAgent ?? null}
      FROM users WHERE key = ${session.userKey} AND status = 'enabled' AND secret_hash = ${session.secretHash} FOR SHARE
    RETURNING id`.execute(db)
  return rows.length > 0
}

/** The claims of the tokens of a session. */
export type TokenSubject = {
  id: string
  generation: number
  userId: string
  userRole: 'user' | 'admin'
  domainId: string | null
}

/** A valid browser session of an enabled user. */
export type CookieSession = {
  id: string
  generation: number
  userKey: number
  userId: string
  userRole: 'user' | 'admin'
  createdAt: string
  expiresAt: string
}

const COOKIE_COLUMNS = sql`s.id, s.generation, s.user_key AS "userKey", u.id AS "userId", u.role AS "userRole",
  s.created_at AS "createdAt", s.expires_at AS "expiresAt"`
const validCookie = (cookieHash: Buffer) => sql`u.key = s.user_key AND u.status = 'enabled'
  AND s.cookie_hash = ${cookieHash} AND s.revoked_at IS NULL AND s.expires_at > now()`

export async function findCookieSession(db: Queryable, cookieHash: Buffer): Promise<CookieSession | undefined> {
  const { rows } = await sql<CookieSession>`SELECT ${COOKIE_COLUMNS} FROM sessions s, users u
    WHERE ${validCookie(cookieHash)}`.execute(db)
  return rows[0]
}

/** Extends a browser session by the time that it may be idle, up to its longest lifetime. */
export async function renewCookieSession(
  db: Queryable,
  cookieHash: Buffer,
  idleSeconds: number,
  maxSeconds: number,
): Promise<CookieSession | undefined> {
  const { rows } = await sql<CookieSession>`UPDATE sessions s SET last_used_at = now(),
      expires_at = least(now() + make_interval(secs => ${idleSeconds}), s.created_at + make_interval(secs => ${maxSeconds}))
    FROM users u WHERE ${validCookie(cookieHash)} RETURNING ${COOKIE_COLUMNS}`.execute(db)
  return rows[0]
}

/** Invalidates every earlier refresh token of the session. */
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

/** Ends every session of a user except one. */
export async function revokeSessionsOf(db: Queryable, userKey: number, except?: string): Promise<void> {
  await sql`UPDATE sessions SET revoked_at = now() WHERE user_key = ${userKey} AND revoked_at IS NULL AND id IS DISTINCT FROM ${except ?? null}::uuid`.execute(
    db,
  )
}

/**
 * Locks the user and returns whether this login is still valid. Requests that create long-lived credentials call it in
 * their transaction, so that no credential survives a password reset that was committed meanwhile.
 */
export async function isLiveLogin(tx: Transaction, userKey: number, sessionId: string | undefined): Promise<boolean> {
  await sql`SELECT 1 FROM users WHERE key = ${userKey} FOR NO KEY UPDATE`.execute(tx)
  const { rows } = await sql`SELECT 1 FROM sessions
    WHERE id = ${sessionId ?? null}::uuid AND user_key = ${userKey} AND revoked_at IS NULL`.execute(tx)
  return rows.length > 0
}

/** A login in the list of its user. */
export type SessionRecord = {
  id: string
  address: string | null
  userAgent: string | null
  isBrowser: boolean
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
  range: PageRange,
): Promise<{ items: SessionRecord[]; next: PageEnd }> {
  const source = {
    columns: sql`s.id, s.address, s.user_agent AS "userAgent", s.cookie_hash IS NOT NULL AS "isBrowser", d.id AS "domainId",
      s.created_at AS "createdAt", s.last_used_at AS "lastUsedAt", s.expires_at AS "expiresAt"`,
    from: sql`sessions s LEFT JOIN domains d ON d.key = s.domain_key`,
    where: sql<boolean>`s.user_key = ${userKey} AND ${ALIVE}`,
    keyset: NEWEST_FIRST,
  }
  const { rows, next } = await readPage<SessionRecord>(db, source, range)
  return { items: rows, next }
}

const NEWEST_FIRST = new Keyset([
  { by: sql`s.created_at`, type: 'time', dir: 'desc' },
  { by: sql`s.id`, type: 'uuid' },
])

/** Removes sessions that ended more than a day ago. */
export async function purgeSessions(db: Queryable): Promise<void> {
  await sql`DELETE FROM sessions WHERE expires_at < now() - interval '1 day' OR revoked_at < now() - interval '1 day'`.execute(
    db,
  )
}

/** Returns the key of a domain in which this user has a role, to which a token can be bound. */
export async function findMembership(db: Queryable, userKey: number, domainId: string): Promise<number | undefined> {
  const { rows } = await sql<{
    key: number
  }>`SELECT d.key FROM domains d WHERE d.id = ${domainId} AND d.status <> 'deleted'
    AND EXISTS (SELECT 1 FROM grants g WHERE g.user_key = ${userKey} AND g.domain_key = d.key AND g.entity_type = 'domain')`.execute(
    db,
  )
  return rows[0]?.key
}
