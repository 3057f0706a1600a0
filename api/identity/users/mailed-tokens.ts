/**
 * Mailed tokens: random text, of which the database contains the hash. A token is valid for the user's current address
 * until it expires, is used, or the password changes.
 */
import { createHash } from 'node:crypto'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { newToken } from '#core/ids.ts'
import { sql } from '#core/sql.ts'

export type MailedPurpose = 'recovery' | 'verification'

/** Contract section 6: a recovery token is valid for five minutes, a verification token for a day. */
const LIFETIME_SECONDS: Record<MailedPurpose, number> = { recovery: 300, verification: 86_400 }
/**
 * Maximum number of mails of one purpose to a user within `MAIL_WINDOW_SECONDS`, so that Skein cannot be used to flood
 * a mailbox.
 */
const MAX_MAILS_IN_WINDOW = 3
const MAIL_WINDOW_SECONDS = 300
/** Longer text is rejected before it is hashed. */
export const MAX_MAILED_TOKEN_CHARS = 128

const hashOf = (token: string) => createHash('sha256').update(token).digest()

/** Creates a token for a locked user. Undefined when the limit of mails is reached. */
export async function issueMailedToken(
  tx: Transaction,
  userKey: number,
  purpose: MailedPurpose,
  email: string,
): Promise<string | undefined> {
  const token = newToken()
  const { rows } = await sql`INSERT INTO mailed_tokens (token_hash, user_key, purpose, email, expires_at)
    SELECT ${hashOf(token)}, ${userKey}::bigint, ${purpose}, ${email}, now() + make_interval(secs => ${LIFETIME_SECONDS[purpose]})
     WHERE (SELECT count(*) FROM mailed_tokens WHERE user_key = ${userKey} AND purpose = ${purpose}
               AND created_at > now() - make_interval(secs => ${MAIL_WINDOW_SECONDS})) < ${MAX_MAILS_IN_WINDOW}
    RETURNING token_hash`.execute(tx)
  return rows.length > 0 ? token : undefined
}

/** Returns the user of a token. Undefined when it is invalid. */
export async function findMailedToken(
  db: Queryable,
  purpose: MailedPurpose,
  token: string,
): Promise<{ userId: string } | undefined> {
  if (token.length > MAX_MAILED_TOKEN_CHARS) return undefined
  const { rows } = await sql<{ id: string }>`SELECT u.id FROM mailed_tokens t JOIN users u ON u.key = t.user_key
    WHERE t.token_hash = ${hashOf(token)} AND t.purpose = ${purpose} AND t.expires_at > now()
      AND lower(u.email) = lower(t.email) AND u.status = 'enabled'`.execute(db)
  return rows[0] === undefined ? undefined : { userId: rows[0].id }
}

/** Invalidates every token of this purpose. */
export async function dropMailedTokens(tx: Transaction, userKey: number, purpose: MailedPurpose): Promise<void> {
  await sql`DELETE FROM mailed_tokens WHERE user_key = ${userKey} AND purpose = ${purpose}`.execute(tx)
}

export async function purgeMailedTokens(db: Queryable): Promise<void> {
  await sql`DELETE FROM mailed_tokens WHERE expires_at < now()`.execute(db)
}
