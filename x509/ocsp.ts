/** OCSP requests and responses (RFC 6960; profile of RFC 5019 where they differ). */
import { createHash } from 'node:crypto'
import {
  CertID,
  CertStatus,
  OCSPRequest,
  OCSPResponse,
  OCSPResponseStatus,
  ResponderID,
  ResponseBytes,
  ResponseData,
  RevokedInfo,
  SingleResponse,
  id_pkix_ocsp_basic,
  id_pkix_ocsp_nonce,
} from '@peculiar/asn1-ocsp'
import { AsnConvert, OctetString } from '@peculiar/asn1-schema'
import { AlgorithmIdentifier, Extension } from '@peculiar/asn1-x509'
import { ServiceError } from '#core/errors/index.ts'
import { wholeSeconds } from './certificate.ts'
import type { Issuer } from './certificate.ts'
import { parseDer } from './der.ts'
import type { DerBounds } from './der.ts'
import { keyBitsOf } from './signing-key.ts'

export type OcspSingleRequest = {
  /** Repeated in the response. */
  certId: CertID
  /** Lower-case hex without leading zeros. */
  serial: string
}

export type OcspRequest = { questions: OcspSingleRequest[]; nonce: Buffer | undefined }

export type OcspSingleResponse = { state: 'good' } | { state: 'unknown' } | { state: 'revoked'; revokedAt: Date }

/** The limit of a request, which needs no authentication. */
export const MAX_OCSP_BYTES = 16_384
/** The maximum number of certificates in one request. */
const MAX_PENDING_REQUESTS = 100
/** DER values of a request: about ten per certificate, and room for names and a signature. */
const MAX_NODES = 2_000
const MAX_DEPTH = 16
/** RFC 9654 section 2.1. */
const MAX_NONCE_BYTES = 128
const BOUNDS: DerBounds = { maxContentLength: MAX_OCSP_BYTES, maxNodes: MAX_NODES, maxDepth: MAX_DEPTH }

/** Throws `malformed`. A signature of the request is not verified. */
export function readOcspRequest(bytes: Buffer): OcspRequest {
  const { requestList, requestExtensions = [] } = parse(bytes).tbsRequest
  if (requestList.length === 0 || requestList.length > MAX_PENDING_REQUESTS) throw malformed()
  const questions = requestList.map(({ reqCert: certId }) => ({
    certId,
    serial: Buffer.from(certId.serialNumber)
      .toString('hex')
      .replace(/^0+(?=.)/, ''),
  }))
  const nonce = requestExtensions.find(({ extnID }) => extnID === id_pkix_ocsp_nonce)?.extnValue.buffer
  if (nonce !== undefined && nonce.byteLength > MAX_NONCE_BYTES) throw malformed()
  return { questions, nonce: nonce === undefined ? undefined : Buffer.from(nonce) }
}

function parse(bytes: Buffer): OCSPRequest {
  try {
    return parseDer(bytes, OCSPRequest, BOUNDS)
  } catch (error) {
    throw malformed(error)
  }
}

function malformed(cause?: unknown): ServiceError {
  return new ServiceError('malformed', 'the body must be an OCSP request in DER', cause === undefined ? {} : { cause })
}

/** RFC 5019 section 2.1.1: the hash that every client accepts. It identifies an issuer and protects nothing. */
const SHA1 = '1.3.14.3.2.26'
const HASHES: Readonly<Record<string, string>> = { [SHA1]: 'sha1', '2.16.840.1.101.3.4.2.1': 'sha256' }

/** Whether the request is about a certificate of this issuer. */
export function isIssuedBy({ certId }: OcspSingleRequest, { name, key }: Issuer): boolean {
  const hash = HASHES[certId.hashAlgorithm.algorithm]
  if (hash === undefined) return false
  const isDigestOf = (digest: OctetString, bytes: Buffer) =>
    createHash(hash).update(bytes).digest().equals(Buffer.from(digest.buffer))
  return isDigestOf(certId.issuerNameHash, name) && isDigestOf(certId.issuerKeyHash, keyBitsOf(key.publicKey))
}

/** The question that a client of this issuer asks about a serial number, which is in hex. */
export function singleRequestOf(serial: string, { name, key }: Issuer): OcspSingleRequest {
  const digits = serial.length % 2 === 0 ? serial : `0${serial}`
  // A leading zero keeps the integer positive.
  const number = Buffer.from(/^[89a-f]/.test(digits) ? `00${digits}` : digits, 'hex')
  const hash = (bytes: Buffer) => new OctetString(createHash('sha1').update(bytes).digest())
  const certId = new CertID({
    hashAlgorithm: new AlgorithmIdentifier({ algorithm: SHA1, parameters: null }),
    issuerNameHash: hash(name),
    issuerKeyHash: hash(keyBitsOf(key.publicKey)),
    serialNumber: new Uint8Array(number).buffer,
  })
  return { certId, serial }
}

/**
 * DER of a successful response, signed by the issuer itself (RFC 6960 section 4.2.2.2, the first case). It names the issuer and contains its
 * certificate: GnuTLS verifies no other form.
 */
export async function createOcspResponse(
  { subject, certificateDer, key }: Issuer,
  answers: readonly { question: OcspSingleRequest; answer: OcspSingleResponse }[],
  { producedAt, nextUpdate, nonce }: { producedAt: Date; nextUpdate: Date; nonce: Buffer | undefined },
): Promise<Buffer> {
  const [thisUpdate, until] = [wholeSeconds(producedAt), wholeSeconds(nextUpdate)]
  const tbsResponseData = new ResponseData({
    responderID: new ResponderID({ byName: subject }),
    producedAt: thisUpdate,
    responses: answers.map(
      ({ question: { certId }, answer }) =>
        new SingleResponse({ certID: certId, certStatus: statusOf(answer), thisUpdate, nextUpdate: until }),
    ),
  })
  if (nonce !== undefined) {
    tbsResponseData.responseExtensions = [
      new Extension({ extnID: id_pkix_ocsp_nonce, extnValue: new OctetString(nonce) }),
    ]
  }
  return encode(
    new OCSPResponse({
      responseStatus: OCSPResponseStatus.successful,
      responseBytes: new ResponseBytes({
        responseType: id_pkix_ocsp_basic,
        response: new OctetString(await key.sign(tbsResponseData, [certificateDer])),
      }),
    }),
  )
}

function statusOf(answer: OcspSingleResponse): CertStatus {
  if (answer.state === 'good') return new CertStatus({ good: null })
  if (answer.state === 'unknown') return new CertStatus({ unknown: null })
  return new CertStatus({ revoked: new RevokedInfo({ revocationTime: wholeSeconds(answer.revokedAt) }) })
}

/** RFC 6960 section 4.2.1: the response to an invalid request. */
export function malformedOcspResponse(): Buffer {
  return encode(new OCSPResponse({ responseStatus: OCSPResponseStatus.malformedRequest }))
}

function encode(response: OCSPResponse): Buffer {
  return Buffer.from(AsnConvert.serialize(response))
}
