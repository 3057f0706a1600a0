/**
 * How the worker trusts whom it dials. When the join token carries the fingerprint of the server's certificate
 * (`<sha256 hex>.<secret>`): exactly that certificate. Else on loopback no TLS, and elsewhere the authorities of the
 * system or of SKEIN_GRPC_TLS_CA. The token travels only after that.
 */
import { checkServerIdentity, connect, createSecureContext } from 'node:tls'
import type { PeerCertificate } from 'node:tls'
import { ServiceError } from '#core/errors/index.ts'
import { dialOverTls, dialPinned, dialPlainly, fingerprintOf, hostOf, isLoopback, portOf } from '#proto/index.ts'
import type { ClientPair, Dialling } from '#proto/index.ts'

export type CredentialOptions = {
  token: string
  /** PEM of the authority that signed the server's certificate. */
  authority: string | undefined
  /** Plaintext wherever it leads, for networks that are protected otherwise; a fingerprint goes before it. */
  isInsecure: boolean
  /** Fingerprint of an earlier token, for starts without one. */
  knownFingerprint: string | undefined
  /** The worker's own certificate at the moment of dialling; undefined while it has none. */
  shown: () => ClientPair | undefined
}

export type ManagerCredentials = {
  /** What Register takes: the token without the fingerprint. */
  joinSecret: string
  /** SHA-256 of the certificate in hexadecimal; undefined: not pinned. */
  fingerprint: string | undefined
  /** How to dial one address (`host:port`). Rejects with `forbidden` when the server is another one than the token names. */
  channel: (address: string) => Promise<Dialling>
  /** Whether that address is dialled over TLS, so that a certificate can be shown. */
  isTls: (address: string) => boolean
}

const HANDSHAKE_DEADLINE_MS = 10_000
const TOKEN_WITH_FINGERPRINT = /^([0-9a-f]{64})\.(.+)$/i

export function createCredentials(options: CredentialOptions): ManagerCredentials {
  const match = TOKEN_WITH_FINGERPRINT.exec(options.token)
  const fingerprint = match?.[1]?.toLowerCase() ?? (options.token === '' ? options.knownFingerprint : undefined)
  // An authority that is given asks for TLS, on loopback too.
  const isTls = (address: string) =>
    fingerprint !== undefined || !(options.isInsecure || (options.authority === undefined && isLoopback(address)))
  return {
    joinSecret: match?.[2] ?? options.token,
    fingerprint,
    isTls,
    async channel(address) {
      if (!isTls(address)) return dialPlainly()
      const shown = options.shown()
      if (fingerprint === undefined) return trusted(address, options.authority, shown)
      return pinned(address, await readCertificate(address), fingerprint, shown)
    },
  }
}

function pinned(
  address: string,
  certificate: PeerCertificate,
  fingerprint: string,
  shown: ClientPair | undefined,
): Dialling {
  if (fingerprintOf(certificate) !== fingerprint) {
    throw new ServiceError(
      'forbidden',
      `${address} shows another certificate than the join token names; get a new token from that manager`,
    )
  }
  return dialPinned(address, toPem(certificate.raw), shown)
}

function trusted(address: string, authority: string | undefined, shown: ClientPair | undefined): Dialling {
  const context = createSecureContext({ ...(authority === undefined ? {} : { ca: authority }), ...shown })
  const host = hostOf(address)
  return dialOverTls(address, context, (_name, seen) => checkServerIdentity(host, seen))
}

function toPem(der: Buffer): string {
  return `-----BEGIN CERTIFICATE-----\n${der.toString('base64')}\n-----END CERTIFICATE-----\n`
}

/** A handshake that sends nothing, to learn which certificate is there. */
function readCertificate(address: string): Promise<PeerCertificate> {
  const host = hostOf(address)
  const port = Number(portOf(address))
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, rejectUnauthorized: false, ALPNProtocols: ['h2', 'http/1.1'] })
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
