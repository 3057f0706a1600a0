/** What anybody may ask: the state of certificates by OCSP (RFC 6960) and the list of revoked ones (RFC 5280 section 5). */
import { X509Certificate } from 'node:crypto'
import type { Queryable } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { formatTime, monotonicMs } from '#core/time.ts'
import type { Authority } from './authority.ts'
import { findStates, listRevoked } from './repository.ts'
import type { OcspQuestion, OcspState } from './schema.ts'
import { normalSerial } from './service.ts'
import { pem } from './x509/der.ts'
import type { CertificateAnswer, OcspRequest } from './x509/ocsp.ts'
import { isAskedOf, makeOcspResponse, malformedOcspResponse, readOcspRequest } from './x509/ocsp.ts'
import { makeRevocationList } from './x509/revocation-list.ts'

export type CertificateStatus = {
  /** DER to DER; a request that is none gets the answer that says so. */
  answerOcsp(request: Buffer): Promise<Buffer>
  /** The same as JSON. Throws `malformed` without a serial number or certificate. */
  state(question: OcspQuestion): Promise<OcspState>
  /** The list in DER and PEM; at most so old as `LIST_KEPT_MS`. */
  revocationList(): Promise<{ der: Buffer; pem: string }>
}

/** An answer is good for so long: whoever keeps it learns of a revocation no later. */
const OCSP_GOOD_FOR_MS = 60_000
const LIST_GOOD_FOR_MS = 3_600_000
/** Anybody may ask for the list: it is made once for all who ask in this time. */
const LIST_KEPT_MS = 1000

export function createCertificateStatus({ db, authority }: { db: Queryable; authority: Authority }): CertificateStatus {
  let kept: { list: Promise<{ der: Buffer; pem: string }>; untilMs: number } | undefined

  async function answersTo(serials: readonly string[]): Promise<Map<string, CertificateAnswer>> {
    const states = await findStates(db, authority.id, serials)
    return new Map(
      [...states].map(([serial, revokedAt]) => [
        serial,
        revokedAt === null ? { state: 'good' } : { state: 'revoked', revokedAt: new Date(formatTime(revokedAt)) },
      ]),
    )
  }

  async function makeList(): Promise<{ der: Buffer; pem: string }> {
    const thisUpdate = new Date()
    const rows = await listRevoked(db, authority.id)
    const der = makeRevocationList(authority, {
      revoked: rows.map(({ serial, revokedAt }) => ({
        serial: Buffer.from(serial, 'hex'),
        revokedAt: new Date(formatTime(revokedAt)),
      })),
      thisUpdate,
      nextUpdate: new Date(thisUpdate.getTime() + LIST_GOOD_FOR_MS),
    })
    return { der, pem: pem('X509 CRL', der) }
  }

  return {
    async answerOcsp(bytes) {
      let request: OcspRequest
      try {
        request = readOcspRequest(bytes)
      } catch (error) {
        if (kindOf(error) === 'malformed') return malformedOcspResponse()
        throw error
      }
      const ours = request.questions.filter((question) => isAskedOf(question, authority))
      const answers = await answersTo(ours.map(({ serial }) => serial))
      const producedAt = new Date()
      return makeOcspResponse(
        authority,
        request.questions.map((question) => ({
          question,
          answer: (ours.includes(question) ? answers.get(question.serial) : undefined) ?? { state: 'unknown' },
        })),
        { producedAt, nextUpdate: new Date(producedAt.getTime() + OCSP_GOOD_FOR_MS), nonce: request.nonce },
      )
    },
    async state({ serial_number: given, certificate }) {
      const serial = normalSerial(given ?? serialOf(certificate))
      const answer = (await answersTo([serial])).get(serial) ?? { state: 'unknown' }
      return {
        serial_number: serial,
        status: answer.state,
        ...(answer.state === 'revoked' ? { revocation_time: formatTime(answer.revokedAt) } : {}),
      }
    },
    async revocationList() {
      const nowMs = monotonicMs()
      if (kept === undefined || nowMs >= kept.untilMs) {
        const list = makeList()
        kept = { list, untilMs: nowMs + LIST_KEPT_MS }
        list.catch(() => {
          kept = undefined
        })
      }
      return await kept.list
    },
  }
}

function serialOf(certificate: string | undefined): string {
  if (certificate === undefined) throw new ServiceError('malformed', 'serial_number or certificate is required')
  try {
    return new X509Certificate(certificate).serialNumber
  } catch (error) {
    throw new ServiceError('malformed', 'certificate must be a certificate in PEM', { cause: error })
  }
}
