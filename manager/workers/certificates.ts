/**
 * Certificates of workers (task-manager.md section 3): issued at registration or renewal, required on every TLS
 * connection from then on, and void when their row is deleted.
 */
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { CERTIFICATE_MS } from '../tls/authority.ts'
import type { Authority } from '../tls/authority.ts'
import { digestSecret } from '../model/worker-secret.ts'

/** A certificate in the form of the protocol. */
export type WorkerCertificate = { certificatePem: string; authorityPem: string; validForMs: bigint }

export async function issueCertificate(
  database: Database,
  authority: Authority,
  worker: { key: number; id: string },
  request: Uint8Array,
): Promise<WorkerCertificate> {
  const { pem, fingerprint } = await authority.issue(request, worker.id)
  await sql`INSERT INTO worker_certificates (fingerprint, worker_key, expires_at)
    VALUES (${fingerprint}, ${worker.key}, now() + make_interval(secs => ${CERTIFICATE_MS / 1000}::float8))`.execute(
    database.db,
  )
  return { certificatePem: pem, authorityPem: authority.pem, validForMs: BigInt(CERTIFICATE_MS) }
}

/**
 * Throws `unauthenticated` if the worker has a certificate and does not present a valid one; `shown` is the SHA-256 of
 * the connection's certificate, signed by the authority.
 */
export async function requireCertificate(
  db: Queryable | Transaction,
  workerKey: number,
  shown: string | undefined,
): Promise<void> {
  const { rows } = await sql<{ is_shown: boolean }>`
    SELECT coalesce(bool_or(fingerprint = ${shown ?? ''} AND expires_at > now()), false) AS is_shown
    FROM worker_certificates WHERE worker_key = ${workerKey} HAVING count(*) > 0`.execute(db)
  if (rows[0]?.is_shown === false) {
    throw new ServiceError('unauthenticated', 'this worker must present its valid certificate')
  }
}

/** The worker with this id and secret, and its certificate if it has one. Throws `unauthenticated`. */
export async function authenticateWorker(
  database: Database,
  { id, secret }: { id: string; secret: string },
  shown: string | undefined,
): Promise<{ key: number; id: string }> {
  const { rows } = await sql<{ key: number }>`SELECT key FROM workers
    WHERE id = ${isId(id) ? id : null} AND secret_hash = ${digestSecret(secret)} AND revoked_at IS NULL`.execute(
    database.db,
  )
  const [row] = rows
  if (row === undefined) throw new ServiceError('unauthenticated', 'unknown worker id or wrong worker secret')
  await requireCertificate(database.db, row.key, shown)
  return { key: row.key, id }
}
