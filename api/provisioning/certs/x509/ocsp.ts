/** Asking and answering whether certificates are good (OCSP, RFC 6960; profile of RFC 5019 where they differ). */
import { createHash } from 'node:crypto'
import type { Issuer } from './certificate.ts'
import { TAG, enumerated, explicit, generalizedTime, implicit, octetString, oid, sequence } from './der.ts'
import { OID } from './oids.ts'
import { childrenOf, malformedDer, parseDer, readOid, requireTag } from './read-der.ts'
import type { DerValue } from './read-der.ts'
import { signed } from './signing.ts'

export type CertificateQuestion = {
  /** DER of CertID, repeated in the answer. */
  certId: Buffer
  hash: string
  issuerNameHash: Buffer
  issuerKeyHash: Buffer
  /** Lower-case hex without leading zeros. */
  serial: string
}

export type OcspRequest = { questions: CertificateQuestion[]; nonce: Buffer | undefined }

export type CertificateAnswer = { state: 'good' } | { state: 'unknown' } | { state: 'revoked'; revokedAt: Date }

/** Certificates that one request may ask about. */
const MAX_QUESTIONS = 100
/** RFC 9654 section 2.1. */
const MAX_NONCE_BYTES = 128
const CONTEXT_1 = 0xa1
const CONTEXT_2 = 0xa2
const CONTEXT_0 = 0xa0

/** Throws `malformed`. A signature of the request is not looked at: anybody may ask. */
export function readOcspRequest(bytes: Buffer): OcspRequest {
  const [toBeSigned] = childrenOf(requireTag(parseDer(bytes), TAG.sequence))
  const parts = childrenOf(requireTag(toBeSigned, TAG.sequence)).filter(
    ({ tag }) => tag !== CONTEXT_0 && tag !== CONTEXT_1,
  )
  const questions = childrenOf(requireTag(parts[0], TAG.sequence)).map(readQuestion)
  if (questions.length === 0 || questions.length > MAX_QUESTIONS) throw malformedDer()
  const extensions = parts.find(({ tag }) => tag === CONTEXT_2)
  return { questions, nonce: extensions === undefined ? undefined : nonceOf(extensions) }
}

function readQuestion(request: DerValue): CertificateQuestion {
  const [certId] = childrenOf(requireTag(request, TAG.sequence))
  const [algorithm, nameHash, keyHash, serial] = childrenOf(requireTag(certId, TAG.sequence))
  const [hash] = childrenOf(requireTag(algorithm, TAG.sequence))
  return {
    certId: (certId as DerValue).whole,
    hash: readOid(hash),
    issuerNameHash: requireTag(nameHash, TAG.octetString).content,
    issuerKeyHash: requireTag(keyHash, TAG.octetString).content,
    serial: requireTag(serial, TAG.integer)
      .content.toString('hex')
      .replace(/^0+(?=.)/, ''),
  }
}

function nonceOf(extensions: DerValue): Buffer | undefined {
  const [list] = childrenOf(extensions)
  for (const one of childrenOf(requireTag(list, TAG.sequence))) {
    const [id, ...rest] = childrenOf(requireTag(one, TAG.sequence))
    if (readOid(id) !== OID.ocspNonce) continue
    const { content } = requireTag(rest.at(-1), TAG.octetString)
    if (content.length > MAX_NONCE_BYTES) throw malformedDer()
    return content
  }
  return undefined
}

const HASHES: Readonly<Record<string, string>> = { [OID.sha1]: 'sha1', [OID.sha256]: 'sha256' }

/** Whether the question is about a certificate of this issuer; `keyBits` are the bits of its public key. */
export function isAskedOf(question: CertificateQuestion, issuer: { name: Buffer; keyBits: Buffer }): boolean {
  const hash = HASHES[question.hash]
  if (hash === undefined) return false
  const digest = (bytes: Buffer) => createHash(hash).update(bytes).digest()
  return digest(issuer.name).equals(question.issuerNameHash) && digest(issuer.keyBits).equals(question.issuerKeyHash)
}

/** DER of a successful answer, signed by the issuer itself (RFC 6960 section 4.2.2.2, the first case). */
export function makeOcspResponse(
  issuer: Issuer,
  answers: readonly { question: CertificateQuestion; answer: CertificateAnswer }[],
  { producedAt, nextUpdate, nonce }: { producedAt: Date; nextUpdate: Date; nonce: Buffer | undefined },
): Buffer {
  const responses = answers.map(({ question, answer }) =>
    sequence(question.certId, statusOf(answer), generalizedTime(producedAt), explicit(0, generalizedTime(nextUpdate))),
  )
  const responseData = sequence(
    explicit(2, octetString(issuer.keyId)),
    generalizedTime(producedAt),
    sequence(...responses),
    ...(nonce === undefined ? [] : [explicit(1, sequence(sequence(oid(OID.ocspNonce), octetString(nonce))))]),
  )
  const { algorithm, signature } = signed(responseData, issuer.key)
  const basic = sequence(responseData, algorithm, signature)
  return sequence(enumerated(0), explicit(0, sequence(oid(OID.ocspBasic), octetString(basic))))
}

function statusOf(answer: CertificateAnswer): Buffer {
  if (answer.state === 'good') return implicit(0, Buffer.alloc(0))
  if (answer.state === 'unknown') return implicit(2, Buffer.alloc(0))
  return explicit(1, generalizedTime(answer.revokedAt))
}

/** RFC 6960 section 4.2.1: the request was none. */
export function malformedOcspResponse(): Buffer {
  return sequence(enumerated(1))
}
