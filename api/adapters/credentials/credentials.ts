/** Credentials of publishers, readers and followers (contract sections 7.1 and 7.2). */
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { DeviceCredentials, MessageCredentials } from '#api/devices/index.ts'
import type { Origin, Logins } from '#api/identity/index.ts'
import { basicCredentialsOf, bearerTokenOf, deviceKeyOf } from '#core/authorization.ts'
import { ServiceError } from '#core/errors/index.ts'

export type CredentialTexts = {
  /** The header Authorization. */
  header: string | undefined
  /** The query parameter `authorization`, for clients that cannot set a header. */
  query: string | undefined
  /** DER of the peer's certificate in the handshake; undefined without one that our authorities signed. */
  certificate: () => Buffer | undefined
  origin: () => Origin
}

/** Verifiers of credentials. */
export type Authenticators = {
  tokens: Logins
  /** The client of a certificate; absent without TLS. */
  clientOf?: (certificate: Buffer) => Promise<DeviceCredentials | undefined>
}

/** The certificate of a socket with a verified chain; the handshake has proved possession of its key. */
export function peerCertificateOf(socket: Socket): Buffer | undefined {
  return socket instanceof TLSSocket && socket.authorized ? socket.getPeerX509Certificate()?.raw : undefined
}

/**
 * `authorization`, which contains a secret or any of these; otherwise the certificate of the connection. Returns a promise only when a
 * token or certificate must be verified. Throws, or rejects with, `unauthenticated`.
 * promise only where a token or certificate has to be verified. Throws, or rejects with, `unauthenticated`.
 */
export function readCredentials(
  { header, query, certificate, origin }: CredentialTexts,
  { tokens, clientOf }: Authenticators,
): MessageCredentials | Promise<MessageCredentials> {
  if (header !== undefined) return readScheme(header, origin, tokens) ?? refuse()
  if (query === undefined || query === '') {
    const der = clientOf === undefined ? undefined : certificate()
    return der === undefined ? refuse() : (clientOf?.(der).then((found) => found ?? refuse()) ?? refuse())
  }
  return readScheme(query, origin, tokens) ?? { kind: 'client', secret: query }
}

function readScheme(
  text: string,
  origin: () => Origin,
  tokens: Logins,
): MessageCredentials | Promise<MessageCredentials> | undefined {
  const secret = deviceKeyOf(text)
  if (secret !== undefined) return { kind: 'client', secret }
  const token = bearerTokenOf(text)
  if (token !== undefined) {
    return tokens.authenticate(token, origin()).then((principal) => ({ kind: 'user', principal }))
  }
  const basic = basicCredentialsOf(text)
  if (basic === undefined || basic.password === '') return undefined
  const { username: clientId, password } = basic
  return clientId === '' ? { kind: 'client', secret: password } : { kind: 'client', secret: password, clientId }
}

function refuse(): never {
  throw new ServiceError('unauthenticated', 'failed to perform authentication: missing or invalid credentials')
}
