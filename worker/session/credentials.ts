/**
 * How the worker trusts whom it dials. Loopback: no TLS. Elsewhere TLS: when the join token carries the fingerprint of
 * the server's certificate (`<sha256 hex>.<secret>`), exactly that certificate; else the authorities of the system or of
 * SKEIN_GRPC_TLS_CA. The token travels only after that.
 */
import { connect, createSecureContext } from 'node:tls'
import type { PeerCertificate } from 'node:tls'
import { credentials } from '@grpc/grpc-js'
import type { ChannelCredentials } from '@grpc/grpc-js'
import { ServiceError } from '#core/errors/index.ts'

export type CredentialOptions = {
  token: string
  /** PEM of the authority that signed the server's certificate. */
  authority: string | undefined
  /** Plaintext wherever it leads; for networks that are protected otherwise. */
  isInsecure: boolean
}

export type ManagerCredentials = {
  /** What Register takes: the token without the fingerprint. */
  joinSecret: string
  /** Credentials for one address (`host:port`). Rejects with `forbidden` when the server is another one than the token names. */
  channel: (address: string) => Promise<ChannelCredentials>
}

const HANDSHAKE_DEADLINE_MS = 10_000
const TOKEN_WITH_FINGERPRINT = /^([0-9a-f]{64})\.(.+)$/i

export function createCredentials(options: CredentialOptions): ManagerCredentials {
  const match = TOKEN_WITH_FINGERPRINT.exec(options.token)
  const fingerprint = match?.[1]?.toLowerCase()
  return {
    joinSecret: match?.[2] ?? options.token,
    async channel(address) {
      if (options.isInsecure || isLoopback(address)) return credentials.createInsecure()
      if (options.authority !== undefined) return credentials.createSsl(Buffer.from(options.authority))
      if (fingerprint === undefined) return credentials.createSsl()
      return pinned(await readCertificate(address), fingerprint, address)
    },
  }
}

/** True for `127.0.0.0/8`, `::1` and `localhost`. */
export function isLoopback(address: string): boolean {
  const host = hostOf(address)
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host)
}

/** `[::1]:7071` → `::1`. */
export function hostOf(address: string): string {
  const colon = address.lastIndexOf(':')
  return address.slice(0, colon).replace(/^\[(.*)\]$/, '$1')
}

function pinned(certificate: PeerCertificate, fingerprint: string, address: string): ChannelCredentials {
  if (fingerprintOf(certificate) !== fingerprint) {
    throw new ServiceError(
      'forbidden',
      `${address} shows another certificate than the join token names; get a new token from that manager`,
    )
  }
  // The pinned certificate is the anchor itself; whom it was issued to and by does not matter.
  const context = createSecureContext({ ca: toPem(certificate.raw), allowPartialTrustChain: true })
  return credentials.createFromSecureContext(context, {
    checkServerIdentity: (_host, shown) =>
      fingerprintOf(shown) === fingerprint ? undefined : new Error('the certificate changed'),
  })
}

function fingerprintOf(certificate: PeerCertificate): string {
  return certificate.fingerprint256.replaceAll(':', '').toLowerCase()
}

function toPem(der: Buffer): string {
  return `-----BEGIN CERTIFICATE-----\n${der.toString('base64')}\n-----END CERTIFICATE-----\n`
}

/** A handshake that sends nothing, to learn which certificate is there. */
function readCertificate(address: string): Promise<PeerCertificate> {
  const host = hostOf(address)
  const port = Number(address.slice(address.lastIndexOf(':') + 1))
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, rejectUnauthorized: false, ALPNProtocols: ['h2'] })
    socket.setTimeout(HANDSHAKE_DEADLINE_MS, () => socket.destroy(new Error('the handshake took too long')))
    socket.once('secureConnect', () => {
      resolve(socket.getPeerCertificate())
      socket.destroy()
    })
    socket.once('error', (cause) => {
      reject(new ServiceError('unavailable', `${address} cannot be reached over TLS: ${cause.message}`, { cause }))
    })
  })
}
