/** Public status of certificates: OCSP (RFC 6960) and the revocation list (RFC 5280 section 5). */
import { X509Certificate } from 'node:crypto'
import type { Queryable } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { formatTime, monotonicMs } from '#core/time.ts'
import {
  isIssuedBy,
  createOcspResponse,
  createRevocationList,
  malformedOcspResponse,
  pem,
  singleRequestOf,
  readOcspRequest,
} from '#x509/index.ts'
import type { OcspSingleResponse, OcspRequest } from '#x509/index.ts'
import type { Authority } from './authority.ts'
import { findStates, listRevoked } from './repository.ts'
import type { OcspStatusRequest, OcspState } from './schema.ts'
import { normalSerial } from './service.ts'
/** Validity of an OCSP response, and so the maximum delay of a revocation for clients that cache it. */
const OCSP_GOOD_FOR_MS = 60_000
const LIST_GOOD_FOR_MS = 3_600_000
/** The list is public: its rows are read once for all requests within this time. */
const LIST_SHARED_MS = 1000
/** An unchanged list is reused for half of its validity. */
const LIST_KEPT_MS = LIST_GOOD_FOR_MS / 2

type RevocationList = { der: Buffer; pem: string }

export class CertificateStatus {
  readonly #db: Queryable
  readonly #authority: Authority
  /** The list for all requests until this time. */
  #shared: { list: Promise<RevocationList>; untilMs: number } | undefined
  /** The last list and its rows. Encoding a list takes a millisecond per twenty rows. */
  #made: { list: RevocationList; rows: string; atMs: number } | undefined

  constructor(db: Queryable, authority: Authority) {
    this.#db = db
    this.#authority = authority
  }

  /** Answers an OCSP request in DER. An invalid request gets the OCSP response `malformedRequest`. */
  async answerOcsp(bytes: Buffer): Promise<Buffer> {
    let request: OcspRequest
    try {
      request = readOcspRequest(bytes)
    } catch (error) {
      if (kindOf(error) === 'malformed') return malformedOcspResponse()
      throw error
    }
    return await this.#ocspResponse(request)
  }

  /** Answers a question in JSON with an OCSP response in DER. Throws the same errors as `state`. */
  async ocspOf(asked: OcspStatusRequest): Promise<Buffer> {
    const question = singleRequestOf(serialIn(asked), this.#authority)
    return await this.#ocspResponse({ questions: [question], nonce: undefined })
  }

  async #ocspResponse({ questions, nonce }: OcspRequest): Promise<Buffer> {
    const ours = questions.filter((question) => isIssuedBy(question, this.#authority))
    const answers = await this.#answersTo(ours.map(({ serial }) => serial))
    const producedAt = new Date()
    return await createOcspResponse(
      this.#authority,
      questions.map((question) => ({
        question,
        answer: (ours.includes(question) ? answers.get(question.serial) : undefined) ?? { state: 'unknown' },
      })),
      { producedAt, nextUpdate: new Date(producedAt.getTime() + OCSP_GOOD_FOR_MS), nonce },
    )
  }

  /** Returns the status as JSON. Throws `malformed` without a serial number or certificate. */
  async state(question: OcspStatusRequest): Promise<OcspState> {
    const serial = serialIn(question)
    const answer = (await this.#answersTo([serial])).get(serial) ?? { state: 'unknown' }
    return {
      serial_number: serial,
      status: answer.state,
      ...(answer.state === 'revoked' ? { revocation_time: formatTime(answer.revokedAt) } : {}),
    }
  }

  /** Returns the list in DER and PEM. It contains revocations older than `LIST_SHARED_MS`. */
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

  async #answersTo(serials: readonly string[]): Promise<Map<string, OcspSingleResponse>> {
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
    const der = await createRevocationList(this.#authority, {
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

const HEX = /^[0-9a-f]{1,64}$/

/** Throws `malformed` unless the question names a serial number. */
function serialIn({ serial_number: given, certificate }: OcspStatusRequest): string {
  const serial = normalSerial(given ?? serialOf(certificate))
  if (HEX.test(serial)) return serial
  throw new ServiceError('malformed', 'serial_number must be hexadecimal')
}

function serialOf(certificate: string | undefined): string {
  if (certificate === undefined) throw new ServiceError('malformed', 'serial_number or certificate is required')
  try {
    return new X509Certificate(certificate).serialNumber
  } catch (error) {
    throw new ServiceError('malformed', 'certificate must be in PEM format', { cause: error })
  }
}
