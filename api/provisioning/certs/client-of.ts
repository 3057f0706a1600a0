/** Who a certificate stands for: asked at every handshake and with every request that brings one, answered from memory. */
import { createHash } from 'node:crypto'
import type { DeviceCredentials } from '#api/devices/index.ts'
import type { Database } from '#core/database/index.ts'
import { createFactCache } from '#core/fact-cache.ts'
import type { FactCache } from '#core/fact-cache.ts'
import type { Journal } from '#api/identity/index.ts'
import { findClientOf } from './repository.ts'

/** What a verified certificate counts for at the gate, which asks again whenever something about its client changes. */
export type CertificateCredentials = Extract<DeviceCredentials, { kind: 'device' }>

export type ClientOfCertificate = (der: Buffer) => Promise<CertificateCredentials | undefined>

/** Certificates that are remembered; some 300 bytes each. */
const MAX_CERTIFICATES = 100_000
/** Kept for a second: an unknown certificate may be one that was issued a moment ago. */
const NONE = 'none'

/**
 * Undefined for a certificate that was not issued here, is revoked or has expired. That its holder has the key, the
 * handshake has shown.
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
