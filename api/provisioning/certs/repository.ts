/** SQL of certificates. A row outlives its client: the revocation list must contain it until it expires. */
import { Keyset, prepared, readPage } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { isId } from '#core/ids.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

export type CertificateRecord = {
  serial: string
  domainKey: number
  clientKey: number
  clientId: string
  pem: string
  notBefore: string
  notAfter: string
  revokedAt: string | null
}

type Row = {
  serial: string
  domain_key: number
  client_key: number
  client_id: string
  pem: string
  not_before: string
  not_after: string
  revoked_at: string | null
}

const COLUMNS = sql`f.serial, f.domain_key, f.client_key, f.client_id, f.pem, f.not_before, f.not_after, f.revoked_at`

const fromRow = (row: Row): CertificateRecord => ({
  serial: row.serial,
  domainKey: row.domain_key,
  clientKey: row.client_key,
  clientId: row.client_id,
  pem: row.pem,
  notBefore: row.not_before,
  notAfter: row.not_after,
  revokedAt: row.revoked_at,
})

export type NewCertificateRow = {
  serial: string
  fingerprint: Buffer
  authority: string
  domainKey: number
  clientKey: number
  clientId: string
  pem: string
  notBefore: Date
  notAfter: Date
  createdBy: string
}

const INSERT = prepared(
  'insert_certificate',
  `INSERT INTO certificates (serial, fingerprint, authority, domain_key, client_key, client_id, pem, not_before, not_after, created_by)
   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
)

export async function insertCertificate(tx: Transaction, one: NewCertificateRow): Promise<void> {
  await INSERT(tx, [
    one.serial,
    one.fingerprint,
    one.authority,
    one.domainKey,
    one.clientKey,
    one.clientId,
    one.pem,
    one.notBefore,
    one.notAfter,
    one.createdBy,
  ])
}

export async function findCertificate(
  db: Queryable,
  domainKey: number,
  serial: string,
): Promise<CertificateRecord | undefined> {
  const { rows } = await sql<Row>`SELECT ${COLUMNS} FROM certificates f
    WHERE f.serial = ${serial} AND f.domain_key = ${domainKey}`.execute(db)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

export type RevokedFilter = 'true' | 'false' | 'all'

export type CertificateListing = PageRange & {
  domainKey: number
  /** Undefined for every client that matches `reachable`, which uses the alias `c`. */
  clientKey: number | undefined
  /** The id of the client; undefined for any. */
  entityId: string | undefined
  reachable: Sql<boolean>
  revoked: RevokedFilter
}

/** Lists certificates, newest first. */
export async function listCertificates(
  db: Queryable,
  listing: CertificateListing,
): Promise<{ total: number; certificates: CertificateRecord[]; next: PageEnd }> {
  const { domainKey, clientKey, entityId, reachable, revoked } = listing
  const ofClient = clientKey === undefined ? sql`true` : sql`f.client_key = ${clientKey}`
  // Another text is the id of no client.
  const isUnknown = entityId !== undefined && !isId(entityId)
  const ofEntity = entityId === undefined ? sql`true` : isUnknown ? sql`false` : sql`c.id = ${entityId}`
  const state =
    revoked === 'all' ? sql`true` : revoked === 'true' ? sql`f.revoked_at IS NOT NULL` : sql`f.revoked_at IS NULL`
  const from = sql`certificates f JOIN clients c ON c.key = f.client_key`
  const where = sql<boolean>`f.domain_key = ${domainKey} AND ${ofClient} AND ${ofEntity} AND ${state} AND ${reachable}`
  const { rows: counted } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM ${from} WHERE ${where}`.execute(db)
  const { rows, next } = await readPage<Row>(db, { columns: COLUMNS, from, where, keyset: NEWEST_FIRST }, listing)
  return { total: counted[0]?.total ?? 0, certificates: rows.map(fromRow), next }
}

const NEWEST_FIRST = new Keyset([
  { by: sql`f.created_at`, type: 'time', dir: 'desc' },
  { by: sql`f.serial`, type: 'text' },
])

/**
 * Revokes one certificate, or all certificates of a client. Certificates that are already revoked are unchanged.
 * Returns the serial numbers and the time of the revocation.
 */
export async function revokeCertificates(
  tx: Transaction,
  which: { serial: string } | { clientKey: number },
): Promise<{ serials: string[]; revokedAt: string } | undefined> {
  const where = 'serial' in which ? sql`serial = ${which.serial}` : sql`client_key = ${which.clientKey}`
  const { rows } = await sql<{ serial: string; revoked_at: string }>`
    UPDATE certificates SET revoked_at = now() WHERE ${where} AND revoked_at IS NULL RETURNING serial, revoked_at`.execute(
    tx,
  )
  const first = rows[0]
  return first === undefined ? undefined : { serials: rows.map((row) => row.serial), revokedAt: first.revoked_at }
}

/** Returns the time of the last revocation of a certificate of the client. Undefined when none was revoked. */
export async function findLastRevocation(db: Queryable, clientKey: number): Promise<string | undefined> {
  const { rows } = await sql<{ revoked_at: string | null }>`
    SELECT max(revoked_at) AS revoked_at FROM certificates WHERE client_key = ${clientKey}`.execute(db)
  return rows[0]?.revoked_at ?? undefined
}

/** Returns the serials that the authority signed, with the time of revocation. */
export async function findStates(
  db: Queryable,
  authority: string,
  serials: readonly string[],
): Promise<Map<string, string | null>> {
  const { rows } = await sql<{ serial: string; revoked_at: string | null }>`
    SELECT serial, revoked_at FROM certificates WHERE authority = ${authority} AND serial = ANY (${serials}::text[])`.execute(
    db,
  )
  return new Map(rows.map((row) => [row.serial, row.revoked_at]))
}

/** Returns the client of a valid certificate. */
export async function findClientOf(db: Queryable, fingerprint: Buffer): Promise<number | undefined> {
  const { rows } = await sql<{ client_key: number }>`SELECT client_key FROM certificates
    WHERE fingerprint = ${fingerprint} AND revoked_at IS NULL AND now() BETWEEN not_before AND not_after`.execute(db)
  return rows[0]?.client_key
}

/** Returns the revoked certificates that have not expired. */
export async function listRevoked(db: Queryable, authority: string): Promise<{ serial: string; revokedAt: string }[]> {
  const { rows } = await sql<{ serial: string; revoked_at: string }>`
    SELECT serial, revoked_at FROM certificates
     WHERE authority = ${authority} AND revoked_at IS NOT NULL AND not_after > now() ORDER BY serial`.execute(db)
  return rows.map((row) => ({ serial: row.serial, revokedAt: row.revoked_at }))
}

/** Removes certificates that expired before this number of days. Returns their number. */
export async function removeExpired(db: Queryable, expiredForDays: number): Promise<number> {
  const { numAffectedRows } =
    await sql`DELETE FROM certificates WHERE not_after < now() - make_interval(days => ${expiredForDays})`.execute(db)
  return Number(numAffectedRows ?? 0n)
}
