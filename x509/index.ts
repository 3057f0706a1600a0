export { createCertificate, newSerial, pem } from './certificate.ts'
export type { AlternativeNames, CertificateParts, Issuer, Purpose, SubjectName } from './certificate.ts'
export { issuerOf } from './issuer.ts'
export {
  MAX_OCSP_BYTES,
  isIssuedBy,
  createOcspResponse,
  malformedOcspResponse,
  readOcspRequest,
  singleRequestOf,
} from './ocsp.ts'
export type { OcspSingleResponse, OcspSingleRequest, OcspRequest } from './ocsp.ts'
export { createRevocationList } from './revocation-list.ts'
export type { Revocation } from './revocation-list.ts'
export { SigningKey, publicKeyDer } from './signing-key.ts'
export { createSigningRequest, readSigningRequest } from './signing-request.ts'
