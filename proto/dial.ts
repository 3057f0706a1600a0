/** How one of our processes dials another: addresses, and TLS to exactly the certificate that is known. */
import { isIP } from 'node:net'
import { X509Certificate } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import type { PeerCertificate, SecureContext } from 'node:tls'
import { credentials } from '@grpc/grpc-js'
import type { ChannelCredentials, ClientOptions } from '@grpc/grpc-js'

/** Credentials, and the channel options that belong to them. */
export type Dialling = {
  credentials: ChannelCredentials
  options: Partial<ClientOptions>
  /** The same for `tls.connect`; undefined: no TLS. */
  tls: DirectTls | undefined
}

export type DirectTls = {
  secureContext: SecureContext
  servername: string
  checkServerIdentity: (name: string, shown: PeerCertificate) => Error | undefined
}

/** Without TLS. */
export const dialPlainly = (): Dialling => ({ credentials: credentials.createInsecure(), options: {}, tls: undefined })

/** TLS to an address whose certificate is judged as given. */
export function dialOverTls(
  address: string,
  secureContext: SecureContext,
  checkServerIdentity: DirectTls['checkServerIdentity'],
): Dialling {
  return {
    credentials: credentials.createFromSecureContext(secureContext, { checkServerIdentity }),
    options: serverName(address),
    tls: { secureContext, checkServerIdentity, servername: nameOf(address) },
  }
}

/**
 * grpc-js asks for the host as TLS server name, which may not be an IP address (RFC 6066 section 3, enforced by Node). A
 * reserved name stands in for it; what is checked is the certificate, by `checkServerIdentity`.
 */
export function serverName(address: string): Partial<ClientOptions> {
  return isIP(hostOf(address)) === 0 ? {} : { 'grpc.ssl_target_name_override': nameOf(address) }
}

function nameOf(address: string): string {
  const host = hostOf(address)
  return isIP(host) === 0 ? host : 'address.invalid'
}

/** `[::1]:7071` → `::1`. */
export function hostOf(address: string): string {
  const colon = address.lastIndexOf(':')
  return address.slice(0, colon).replace(/^\[(.*)\]$/, '$1')
}

export function portOf(address: string): string {
  return address.slice(address.lastIndexOf(':') + 1)
}

/** True for `127.0.0.0/8`, `::1` and `localhost`. */
export function isLoopback(address: string): boolean {
  const host = hostOf(address)
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host)
}

/**
 * An address as it is reached from elsewhere: a service that listens on every address, or on loopback, of the machine of
 * `peer` is dialled at the host of `peer`.
 */
export function reachableFrom(address: string, peer: string): string {
  const host = hostOf(address)
  const isEverywhere = host === '0.0.0.0' || host === '::'
  if (!isEverywhere && !isLoopback(address)) return address
  const peerHost = hostOf(peer)
  return `${peerHost.includes(':') ? `[${peerHost}]` : peerHost}:${portOf(address)}`
}

/** SHA-256 of a certificate in hexadecimal digits, as join tokens carry it. */
export function fingerprintOf(certificate: { fingerprint256: string }): string {
  return certificate.fingerprint256.replaceAll(':', '').toLowerCase()
}

/** What a client shows of itself over TLS, PEM. */
export type ClientPair = { cert: string; key: string }

/** TLS to the server that shows this very certificate (PEM); whom it was issued to and by does not matter. */
export function dialPinned(address: string, certificatePem: string, shown?: ClientPair): Dialling {
  const fingerprint = fingerprintOf(new X509Certificate(certificatePem))
  const context = createSecureContext({ ca: certificatePem, allowPartialTrustChain: true, ...shown })
  return dialOverTls(address, context, (_name, seen) =>
    fingerprintOf(seen) === fingerprint ? undefined : new Error('the certificate is another one'),
  )
}
