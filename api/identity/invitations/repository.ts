/** SQL of invitations. */
import { Keyset, readPage } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ACTIONS, ADMIN_ROLE_KEY, ADMIN_ROLE_NAME, adminRoleId } from '../access/index.ts'

/** The attributes of an invitation, without the names in a listing. */
export type InvitationFacts = {
  domainKey: number
  userKey: number
  invitedBy: string
  /** Undefined when the role was deleted. */
  roleId: string | undefined
  /** The relation of the invitation. Null for an invitation to a role. */
  relation: string | null
  isExpired: boolean
  confirmedAt: string | null
  rejectedAt: string | null
}

export type InvitationRecord = InvitationFacts & {
  userId: string
  domainId: string
  domainName: string
  /** Undefined when it was deleted. */
  role: { id: string; name: string; actions: readonly string[] } | undefined
  createdAt: string
  updatedAt: string | null
  expiresAt: string
}

type Row = {
  domain_key: number
  user_key: number
  invited_by: string
  role_key: number
  role_id: string | null
  relation: string | null
  is_expired: boolean
  created_at: string
  updated_at: string | null
  expires_at: string
  confirmed_at: string | null
  rejected_at: string | null
}

type ShownRow = Row & {
  user_id: string
  domain_id: string
  domain_name: string
  role_name: string | null
  role_actions: string[] | null
}

function factsOf(row: Row): InvitationFacts {
  return {
    domainKey: row.domain_key,
    userKey: row.user_key,
    invitedBy: row.invited_by,
    roleId: row.role_key === ADMIN_ROLE_KEY ? adminRoleId('domain', row.domain_key) : (row.role_id ?? undefined),
    relation: row.relation,
    isExpired: row.is_expired,
    confirmedAt: row.confirmed_at,
    rejectedAt: row.rejected_at,
  }
}

function roleOf(row: ShownRow, id: string | undefined): InvitationRecord['role'] {
  if (id === undefined) return undefined
  if (row.role_key === ADMIN_ROLE_KEY) return { id, name: ADMIN_ROLE_NAME, actions: ACTIONS.domain }
  return { id, name: row.role_name ?? '', actions: row.role_actions ?? [] }
}

function fromRow(row: ShownRow): InvitationRecord {
  const facts = factsOf(row)
  return {
    ...facts,
    userId: row.user_id,
    domainId: row.domain_id,
    domainName: row.domain_name,
    role: roleOf(row, facts.roleId),
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    expiresAt: row.expires_at,
  }
}

/**
 * Uses the statement time: a request that waited for a lock must compare with the current time, not with the start of
 * the transaction.
 */
const FACTS = sql`i.*, r.id AS role_id, i.expires_at <= statement_timestamp() AS is_expired`

/** Invitations to deleted domains are excluded. */
const SHOWN = sql`invitations i JOIN domains d ON d.key = i.domain_key AND d.status <> 'deleted'
  JOIN users u ON u.key = i.user_key LEFT JOIN roles r ON r.key = i.role_key`

export async function findInvitation(
  db: Queryable,
  domainId: string,
  userId: string,
): Promise<InvitationRecord | undefined> {
  const { rows } = await sql<ShownRow>`
    SELECT ${FACTS}, u.id AS user_id, d.id AS domain_id, d.name AS domain_name,
           r.name AS role_name, r.actions AS role_actions
      FROM ${SHOWN} WHERE d.id = ${domainId} AND u.id = ${userId}`.execute(db)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

/** Returns the invitation, locked until the transaction ends. */
export async function lockInvitation(
  tx: Transaction,
  domainKey: number,
  userKey: number,
): Promise<InvitationFacts | undefined> {
  const { rows } = await sql<Row>`SELECT ${FACTS} FROM invitations i LEFT JOIN roles r ON r.key = i.role_key
    WHERE i.domain_key = ${domainKey} AND i.user_key = ${userKey} FOR UPDATE OF i`.execute(tx)
  return rows[0] === undefined ? undefined : factsOf(rows[0])
}

/** True when the domain has an invitation without an answer. */
export async function hasOpenInvitation(db: Queryable, domainId: string): Promise<boolean> {
  const { rows } = await sql`SELECT 1 FROM ${SHOWN}
    WHERE d.id = ${domainId} AND i.confirmed_at IS NULL AND i.rejected_at IS NULL LIMIT 1`.execute(db)
  return rows.length > 0
}

export type NewInvitation = Pick<InvitationFacts, 'domainKey' | 'userKey' | 'invitedBy' | 'relation'> & {
  /** `ADMIN_ROLE_KEY` for the built-in role. */
  roleKey: number
  lifetimeHours: number
}

/** Creates the invitation, or resets an earlier one of the same user and domain: unanswered, with a full lifetime. */
export async function saveInvitation(
  tx: Transaction,
  invitation: NewInvitation,
  { isResent }: { isResent: boolean },
): Promise<void> {
  const { domainKey, userKey, invitedBy, roleKey, relation, lifetimeHours } = invitation
  const expiresAt = sql`now() + make_interval(hours => ${lifetimeHours})`
  await sql`INSERT INTO invitations (domain_key, user_key, invited_by, role_key, relation, expires_at)
    VALUES (${domainKey}, ${userKey}, ${invitedBy}, ${roleKey}, ${relation}, ${expiresAt})
    ON CONFLICT ON CONSTRAINT invitations_pkey DO UPDATE SET
      invited_by = EXCLUDED.invited_by, role_key = EXCLUDED.role_key, relation = EXCLUDED.relation,
      expires_at = EXCLUDED.expires_at, confirmed_at = NULL, rejected_at = NULL,
      created_at = CASE WHEN ${isResent} THEN invitations.created_at ELSE now() END,
      updated_at = CASE WHEN ${isResent} THEN now() END`.execute(tx)
}

export async function answerInvitation(
  tx: Transaction,
  domainKey: number,
  userKey: number,
  answer: 'accepted' | 'rejected',
): Promise<void> {
  const column = sql.ref(answer === 'accepted' ? 'confirmed_at' : 'rejected_at')
  await sql`UPDATE invitations SET ${column} = now(), updated_at = now()
    WHERE domain_key = ${domainKey} AND user_key = ${userKey}`.execute(tx)
}

export async function deleteInvitation(tx: Transaction, domainKey: number, userKey: number): Promise<void> {
  await sql`DELETE FROM invitations WHERE domain_key = ${domainKey} AND user_key = ${userKey}`.execute(tx)
}

export type InvitationState = 'all' | 'pending' | 'accepted' | 'rejected'

/** The invitations that a caller may see: received or sent ones, if given, and those of one domain, if given. */
export type InvitationScope = { receivedBy?: number; sentBy?: string; domainKey?: number }

export type InvitationFilter = {
  scope: InvitationScope
  domainId?: string
  inviteeId?: string
  invitedBy?: string
  roleId?: string
  relation?: string
  state: InvitationState
}

const STATES: Record<InvitationState, Sql<boolean>> = {
  all: sql<boolean>`true`,
  pending: sql<boolean>`(i.confirmed_at IS NULL AND i.rejected_at IS NULL)`,
  accepted: sql<boolean>`i.confirmed_at IS NOT NULL`,
  rejected: sql<boolean>`i.rejected_at IS NOT NULL`,
}

function scopeCondition({ receivedBy, sentBy, domainKey }: InvitationScope): Sql<boolean> {
  const ways: Sql<boolean>[] = []
  if (receivedBy !== undefined) ways.push(sql<boolean>`i.user_key = ${receivedBy}`)
  if (sentBy !== undefined) ways.push(sql<boolean>`i.invited_by = ${sentBy}`)
  const within = domainKey === undefined ? sql<boolean>`true` : sql<boolean>`i.domain_key = ${domainKey}`
  return ways.length === 0 ? within : sql<boolean>`(${sql.join(ways, sql` OR `)}) AND ${within}`
}

async function conditionOf(db: Queryable, filter: InvitationFilter): Promise<Sql<boolean>> {
  const conditions = [scopeCondition(filter.scope), STATES[filter.state]]
  if (filter.domainId !== undefined) conditions.push(sql<boolean>`d.id = ${filter.domainId}`)
  if (filter.inviteeId !== undefined) conditions.push(sql<boolean>`u.id = ${filter.inviteeId}`)
  if (filter.invitedBy !== undefined) conditions.push(sql<boolean>`i.invited_by = ${filter.invitedBy}`)
  if (filter.relation !== undefined) {
    conditions.push(
      sql<boolean>`coalesce(i.relation, CASE WHEN i.role_key = ${ADMIN_ROLE_KEY} THEN 'administrator' ELSE r.name END) = ${filter.relation}`,
    )
  }
  const others = sql<boolean>`${sql.join([...conditions], sql` AND `)}`
  if (filter.roleId === undefined) return others
  // The id of a built-in role is a digest, so its domain is found by comparison.
  const { rows } = await sql<{ domain_key: number }>`
    SELECT DISTINCT i.domain_key FROM ${SHOWN} WHERE ${others} AND i.role_key = ${ADMIN_ROLE_KEY}`.execute(db)
  const administered = rows.find((row) => adminRoleId('domain', row.domain_key) === filter.roleId)
  return sql<boolean>`${others} AND (CASE WHEN i.role_key = ${ADMIN_ROLE_KEY}
    THEN i.domain_key = ${administered?.domain_key ?? null} ELSE r.id = ${filter.roleId} END)`
}

/** Sorted by the time at which they were sent. Throws `malformed` for a cursor of another order. */
export async function listInvitations(
  db: Queryable,
  filter: InvitationFilter,
  range: PageRange,
): Promise<{ total: number; items: InvitationRecord[]; next: PageEnd }> {
  const where = await conditionOf(db, filter)
  const columns = sql`${FACTS}, u.id AS user_id, d.id AS domain_id, d.name AS domain_name, r.name AS role_name, r.actions AS role_actions`
  const [counted, { rows, next }] = await Promise.all([
    sql<{ total: number }>`SELECT count(*) AS total FROM ${SHOWN} WHERE ${where}`.execute(db),
    readPage<ShownRow>(db, { columns, from: SHOWN, where, keyset: OLDEST_FIRST }, range),
  ])
  return { total: counted.rows[0]?.total ?? 0, items: rows.map(fromRow), next }
}

const OLDEST_FIRST = new Keyset([
  { by: sql`i.created_at`, type: 'time' },
  { by: sql`i.domain_key`, type: 'number' },
  { by: sql`i.user_key`, type: 'number' },
])
