/** The list of revoked certificates (RFC 5280 section 5). */
import type { Issuer } from './certificate.ts'
import { extension } from './certificate.ts'
import { explicit, implicit, integer, sequence, time } from './der.ts'
import { OID } from './oids.ts'
import { algorithmIdentifier, signatureAlgorithmOf, signed } from './signing.ts'

export type Revocation = { serial: Buffer; revokedAt: Date }

/** DER of the list. */
export function makeRevocationList(
  issuer: Issuer,
  { revoked, thisUpdate, nextUpdate }: { revoked: readonly Revocation[]; thisUpdate: Date; nextUpdate: Date },
): Buffer {
  const key = issuer.key
  const entries = revoked.map((one) => sequence(integer(one.serial), time(one.revokedAt)))
  const toBeSigned = sequence(
    integer(1),
    algorithmIdentifier(signatureAlgorithmOf(key)),
    issuer.name,
    time(thisUpdate),
    time(nextUpdate),
    // An empty list is left out (RFC 5280 section 5.1.2.6).
    ...(entries.length === 0 ? [] : [sequence(...entries)]),
    explicit(
      0,
      sequence(
        extension(OID.authorityKeyIdentifier, sequence(implicit(0, issuer.keyId))),
        // Milliseconds grow from list to list, whichever process makes it.
        extension(OID.crlNumber, integer(thisUpdate.getTime())),
      ),
    ),
  )
  const { algorithm, signature } = signed(toBeSigned, key)
  return sequence(toBeSigned, algorithm, signature)
}
