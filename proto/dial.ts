/** Connections between Skein processes: addresses, and TLS to a pinned certificate. */
import { isIP } from 'node:net'
import { X509Certificate } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import type { PeerCertificate, SecureContext } from 'node:tls'
import { credentials } from '@grpc/grpc-js'
import type { ChannelCredentials, ClientOptions } from '@grpc/grpc-js'

/** Credentials with their channel options. */
export type Dialling = {
  credentials: ChannelCredentials
  options: Partial<ClientOptions>
  /** The options of the same connection for `tls.connect`; undefined: no TLS. */
  tls: DirectTls | undefined
}

export type DirectTls = {
  secureContext: SecureContext
  servername: string
  checkServerIdentity: (name: string, shown: PeerCertificate) => Error | undefined
}

/** Credentials for a connection without TLS. */
export const dialWithoutTls = (): Dialling => ({
  credentials: credentials.createInsecure(),
  options: {},
  tls: undefined,
})

/** TLS with custom verification of the server's certificate. */
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
 * grpc-js uses the host as TLS server name, which must not be an IP address (RFC 6066 section 3, enforced by Node). A
 * reserved name replaces it; `checkServerIdentity` verifies the certificate.
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
 * An address as other machines reach it: a service that listens on every address, or on loopback, of the machine of
 * `peer` is reachable at the host of `peer`.
 */
export function reachableFrom(address: string, peer: string): string {
  const host = hostOf(address)
  const isEverywhere = host === '0.0.0.0' || host === '::'
  if (!isEverywhere && !isLoopback(address)) return address
  const peerHost = hostOf(peer)
  return `${peerHost.includes(':') ? `[${peerHost}]` : peerHost}:${portOf(address)}`
}

/** SHA-256 of a certificate in hexadecimal digits, as in join tokens. */
export function fingerprintOf(certificate: { fingerprint256: string }): string {
  return certificate.fingerprint256.replaceAll(':', '').toLowerCase()
}

/** Certificate and key of a client for TLS, PEM. */
export type ClientPair = { cert: string; key: string }

/** TLS to the server with exactly this certificate (PEM), independent of its subject and issuer. */
export function dialPinned(address: string, certificatePem: string, shown?: ClientPair): Dialling {
  const fingerprint = fingerprintOf(new X509Certificate(certificatePem))
  const context = createSecureContext({ ca: certificatePem, allowPartialTrustChain: true, ...shown })
  return dialOverTls(address, context, (_name, seen) =>
    fingerprintOf(seen) === fingerprint ? undefined : new Error('the certificate does not have the pinned fingerprint'),
  )
}
