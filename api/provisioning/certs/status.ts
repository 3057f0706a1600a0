/** What anybody may ask: the state of certificates by OCSP (RFC 6960) and the list of revoked ones (RFC 5280 section 5). */
import { X509Certificate } from 'node:crypto'
import type { Queryable } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { formatTime, monotonicMs } from '#core/time.ts'
import {
  isAskedOf,
  makeOcspResponse,
  makeRevocationList,
  malformedOcspResponse,
  pem,
  readOcspRequest,
} from '#core/x509/index.ts'
import type { CertificateAnswer, OcspRequest } from '#core/x509/index.ts'
import type { Authority } from './authority.ts'
import { findStates, listRevoked } from './repository.ts'
import type { OcspQuestion, OcspState } from './schema.ts'
import { normalSerial } from './service.ts'
/** An answer is good for so long: whoever keeps it learns of a revocation no later. */
const OCSP_GOOD_FOR_MS = 60_000
const LIST_GOOD_FOR_MS = 3_600_000
/** Anybody may ask for the list: the rows are read once for all who ask in this time. */
const LIST_SHARED_MS = 1000
/** A list whose rows did not change is given again for so long: half of the time that it is good for. */
const LIST_KEPT_MS = LIST_GOOD_FOR_MS / 2

type RevocationList = { der: Buffer; pem: string }

export class CertificateStatus {
  readonly #db: Queryable
  readonly #authority: Authority
  /** The list that whoever asks until then is given. */
  #shared: { list: Promise<RevocationList>; untilMs: number } | undefined
  /** What was made last, and of which rows: making it anew takes a millisecond for each twenty of them. */
  #made: { list: RevocationList; rows: string; atMs: number } | undefined

  constructor(db: Queryable, authority: Authority) {
    this.#db = db
    this.#authority = authority
  }

  /** DER to DER; a request that is none gets the answer that says so. */
  async answerOcsp(bytes: Buffer): Promise<Buffer> {
    let request: OcspRequest
    try {
      request = readOcspRequest(bytes)
    } catch (error) {
      if (kindOf(error) === 'malformed') return malformedOcspResponse()
      throw error
    }
    const ours = request.questions.filter((question) => isAskedOf(question, this.#authority))
    const answers = await this.#answersTo(ours.map(({ serial }) => serial))
    const producedAt = new Date()
    return await makeOcspResponse(
      this.#authority,
      request.questions.map((question) => ({
        question,
        answer: (ours.includes(question) ? answers.get(question.serial) : undefined) ?? { state: 'unknown' },
      })),
      { producedAt, nextUpdate: new Date(producedAt.getTime() + OCSP_GOOD_FOR_MS), nonce: request.nonce },
    )
  }

  /** The same as JSON. Throws `malformed` without a serial number or certificate. */
  async state({ serial_number: given, certificate }: OcspQuestion): Promise<OcspState> {
    const serial = normalSerial(given ?? serialOf(certificate))
    const answer = (await this.#answersTo([serial])).get(serial) ?? { state: 'unknown' }
    return {
      serial_number: serial,
      status: answer.state,
      ...(answer.state === 'revoked' ? { revocation_time: formatTime(answer.revokedAt) } : {}),
    }
  }

  /** The list in DER and PEM. What was revoked before `LIST_SHARED_MS` is in it. */
  async revocationList(): Promise<RevocationList> {
    const nowMs = monotonicMs()
    if (this.#shared === undefined || nowMs >= this.#shared.untilMs) {
      const list = this.#currentList()
      this.#shared = { list, untilMs: nowMs + LIST_SHARED_MS }
      list.catch(() => {
        this.#shared = undefined
      })
    }
    return await this.#shared.list
  }

  async #answersTo(serials: readonly string[]): Promise<Map<string, CertificateAnswer>> {
    const states = await findStates(this.#db, this.#authority.id, serials)
    return new Map(
      [...states].map(([serial, revokedAt]) => [
        serial,
        revokedAt === null ? { state: 'good' } : { state: 'revoked', revokedAt: new Date(formatTime(revokedAt)) },
      ]),
    )
  }

  async #currentList(): Promise<RevocationList> {
    const revoked = await listRevoked(this.#db, this.#authority.id)
    const rows = JSON.stringify(revoked)
    const nowMs = monotonicMs()
    if (this.#made?.rows === rows && nowMs < this.#made.atMs + LIST_KEPT_MS) return this.#made.list
    const thisUpdate = new Date()
    const der = await makeRevocationList(this.#authority, {
      revoked: revoked.map(({ serial, revokedAt }) => ({
        serial: Buffer.from(serial, 'hex'),
        revokedAt: new Date(formatTime(revokedAt)),
      })),
      thisUpdate,
      nextUpdate: new Date(thisUpdate.getTime() + LIST_GOOD_FOR_MS),
    })
    const list = { der, pem: pem('X509 CRL', der) }
    this.#made = { list, rows, atMs: nowMs }
    return list
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
