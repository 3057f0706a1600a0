/**
 * Finds the client of a certificate. It is called for every handshake and every request with a certificate, and cached.
 */
import { createHash } from 'node:crypto'
import type { DeviceCredentials } from '#api/devices/index.ts'
import type { Database } from '#core/database/index.ts'
import { createFactCache } from '#core/fact-cache.ts'
import type { FactCache } from '#core/fact-cache.ts'
import type { Journal } from '#api/identity/index.ts'
import { findClientOf } from './repository.ts'

/** Credentials of a verified certificate for the gate, which checks them again whenever its client changes. */
export type CertificateCredentials = Extract<DeviceCredentials, { kind: 'device' }>

export type ClientOfCertificate = (der: Buffer) => Promise<CertificateCredentials | undefined>

/** Maximum number of cached certificates; some 300 bytes each. */
const MAX_CERTIFICATES = 100_000
/** Cached for a second only: an unknown certificate may have been issued a moment ago. */
const NONE = 'none'

/**
 * Undefined for a certificate that was not issued here, is revoked or has expired. The handshake has proved possession
 * of the key.
 */
export function createClientOfCertificate(deps: { database: Database; journal: Journal }): ClientOfCertificate {
  const { database, journal } = deps
  const known: FactCache<number | typeof NONE> = createFactCache({
    maxEntries: MAX_CERTIFICATES,
    isFresh: journal.isFresh,
  })
  journal.listen(known)
  return async (der) => {
    const fingerprint = createHash('sha256').update(der).digest()
    const certificate = fingerprint.toString('hex')
    const clientKey = await known.get(certificate, async () => {
      const found = await findClientOf(database.db, fingerprint)
      return found === undefined ? { value: NONE, dependsOn: [] } : { value: found, dependsOn: [found] }
    })
    return clientKey === NONE ? undefined : { kind: 'device', clientKey, certificate }
  }
}
