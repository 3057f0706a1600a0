/** The list of revoked certificates (RFC 5280 section 5). */
import {
  CRLNumber,
  Extensions,
  RevokedCertificate,
  TBSCertList,
  Time,
  Version,
  id_ce_cRLNumber,
} from '@peculiar/asn1-x509'
import { authorityKeyIdentifier, extension, positiveInteger, wholeSeconds } from './certificate.ts'
import type { Issuer } from './certificate.ts'

export type Revocation = { serial: Buffer; revokedAt: Date }

/** DER of the list. The serials must differ. */
export async function createRevocationList(
  { subject, keyId, key }: Issuer,
  { revoked, thisUpdate, nextUpdate }: { revoked: readonly Revocation[]; thisUpdate: Date; nextUpdate: Date },
): Promise<Buffer> {
  const list = new TBSCertList({
    version: Version.v2,
    signature: key.algorithmIdentifier,
    issuer: subject,
    thisUpdate: new Time(wholeSeconds(thisUpdate)),
    nextUpdate: new Time(wholeSeconds(nextUpdate)),
    crlExtensions: new Extensions([
      authorityKeyIdentifier(keyId),
      // Milliseconds increase from list to list, also across processes.
      extension(id_ce_cRLNumber, new CRLNumber(thisUpdate.getTime())),
    ]),
  })
  // An empty list is omitted (RFC 5280 section 5.1.2.6).
  if (revoked.length > 0) list.revokedCertificates = revoked.map(entryOf)
  return await key.sign(list)
}

function entryOf({ serial, revokedAt }: Revocation): RevokedCertificate {
  return new RevokedCertificate({
    userCertificate: positiveInteger(serial),
    revocationDate: new Time(wholeSeconds(revokedAt)),
  })
}
