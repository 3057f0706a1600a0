/** Who a message, a reader or a follower says he is (contract sections 7.1 and 7.2). */
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { DeviceCredentials, MessageCredentials } from '#api/devices/index.ts'
import type { Origin, Logins } from '#api/identity/index.ts'
import { basicCredentialsOf, bearerTokenOf, deviceKeyOf } from '#core/authorization.ts'
import { ServiceError } from '#core/errors/index.ts'

export type CredentialTexts = {
  /** The header Authorization. */
  header: string | undefined
  /** The query parameter `authorization`, where no header can be set. */
  query: string | undefined
  /** DER of the certificate that the peer's handshake brought; undefined: none that our authorities signed. */
  certificate: () => Buffer | undefined
  origin: () => Origin
}

/** What credentials are checked with. */
export type Authenticators = {
  tokens: Logins
  /** Who a certificate stands for; absent where there is no TLS. */
  clientOf?: (certificate: Buffer) => Promise<DeviceCredentials | undefined>
}

/** The certificate of a socket whose chain was verified; the handshake has shown that the peer has its key. */
export function peerCertificateOf(socket: Socket): Buffer | undefined {
  return socket instanceof TLSSocket && socket.authorized ? socket.getPeerX509Certificate()?.raw : undefined
}

/**
 * Reads `Client <secret>` (`Thing <secret>` of older devices), Basic with the client's id (may be empty) and secret, `Bearer <user token>`, or the query
 * `authorization`, which holds a secret or any of these; without any of them the certificate of the connection counts. A
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
