/** SQL of invitations by mail. */
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { ACTIONS, ADMIN_ROLE_KEY, ADMIN_ROLE_NAME, adminRoleId } from '../../access/index.ts'

export type MailedInvitation = {
  domainKey: number
  email: string
  invitedBy: string
  /** `ADMIN_ROLE_KEY` for the built-in role. */
  roleKey: number
  /** The relation of the invitation. Null for an invitation to a role. */
  relation: string | null
}

export type MailedRecord = Omit<MailedInvitation, 'roleKey'> & {
  /** Undefined when it was deleted. */
  role: { id: string; name: string; actions: readonly string[] } | undefined
  createdAt: string
  expiresAt: string
}

/** The caller holds the lock of the domain. */
export async function saveMailed(
  tx: Transaction,
  invitation: MailedInvitation & { tokenHash: Buffer; lifetimeHours: number },
): Promise<void> {
  const { domainKey, email, tokenHash, invitedBy, roleKey, relation, lifetimeHours } = invitation
  await sql`INSERT INTO mailed_invitations (domain_key, email, token_hash, invited_by, role_key, relation, expires_at)
    VALUES (${domainKey}, ${email}, ${tokenHash}, ${invitedBy}, ${roleKey}, ${relation}, now() + make_interval(hours => ${lifetimeHours}))
    ON CONFLICT ON CONSTRAINT mailed_invitations_pkey DO UPDATE SET
      token_hash = EXCLUDED.token_hash, invited_by = EXCLUDED.invited_by, role_key = EXCLUDED.role_key,
      relation = EXCLUDED.relation, created_at = now(), expires_at = EXCLUDED.expires_at`.execute(tx)
}

/** The number of addresses that are invited, and whether this one is. Expired invitations are removed first. */
export async function countMailed(
  tx: Transaction,
  domainKey: number,
  email: string,
): Promise<{ total: number; isInvited: boolean }> {
  await sql`DELETE FROM mailed_invitations WHERE domain_key = ${domainKey} AND expires_at <= statement_timestamp()`.execute(
    tx,
  )
  const { rows } = await sql<{ total: number; is_invited: boolean }>`
    SELECT count(*) AS total, coalesce(bool_or(email = ${email}), false) AS is_invited
      FROM mailed_invitations WHERE domain_key = ${domainKey}`.execute(tx)
  return { total: rows[0]?.total ?? 0, isInvited: rows[0]?.is_invited ?? false }
}

type Row = {
  domain_key: number
  email: string
  invited_by: string
  role_key: number
  relation: string | null
  role_id: string | null
  role_name: string | null
  role_actions: string[] | null
  created_at: string
  expires_at: string
}

function roleOf(row: Row): MailedRecord['role'] {
  if (row.role_key === ADMIN_ROLE_KEY)
    return { id: adminRoleId('domain', row.domain_key), name: ADMIN_ROLE_NAME, actions: ACTIONS.domain }
  if (row.role_id === null) return undefined
  return { id: row.role_id, name: row.role_name ?? '', actions: row.role_actions ?? [] }
}

/** Returns the invitations whose link is valid, sorted by address. A domain has at most `MAX_MAILED`. */
export async function listMailed(db: Queryable, domainKey: number): Promise<MailedRecord[]> {
  const { rows } = await sql<Row>`
    SELECT m.*, r.id AS role_id, r.name AS role_name, r.actions AS role_actions
      FROM mailed_invitations m LEFT JOIN roles r ON r.key = m.role_key
     WHERE m.domain_key = ${domainKey} AND m.expires_at > statement_timestamp() ORDER BY m.email`.execute(db)
  return rows.map((row) => ({
    domainKey: row.domain_key,
    email: row.email,
    invitedBy: row.invited_by,
    relation: row.relation,
    role: roleOf(row),
    createdAt: row.created_at,
    expiresAt: row.expires_at,
  }))
}

/** The domain and the address of a valid token. */
export async function findMailed(
  db: Queryable,
  tokenHash: Buffer,
): Promise<{ domainKey: number; email: string } | undefined> {
  const { rows } = await sql<{ domain_key: number; email: string }>`SELECT domain_key, email FROM mailed_invitations
    WHERE token_hash = ${tokenHash} AND expires_at > statement_timestamp()`.execute(db)
  return rows[0] === undefined ? undefined : { domainKey: rows[0].domain_key, email: rows[0].email }
}

/** Removes the invitation of a valid token and returns it: each token is used once. */
export async function takeMailed(tx: Transaction, tokenHash: Buffer): Promise<MailedInvitation | undefined> {
  const { rows } = await sql<Row>`DELETE FROM mailed_invitations
    WHERE token_hash = ${tokenHash} AND expires_at > statement_timestamp() RETURNING *`.execute(tx)
  const [row] = rows
  if (row === undefined) return undefined
  const { domain_key: domainKey, email, invited_by: invitedBy, role_key: roleKey, relation } = row
  return { domainKey, email, invitedBy, roleKey, relation }
}

/** False when the address is not invited. */
export async function deleteMailed(tx: Transaction, domainKey: number, email: string): Promise<boolean> {
  const { rows } = await sql`DELETE FROM mailed_invitations
    WHERE domain_key = ${domainKey} AND email = ${email} RETURNING email`.execute(tx)
  return rows.length > 0
}
