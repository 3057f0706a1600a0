/**
 * How the worker authenticates servers. If the join token contains the fingerprint of the server's certificate (`<sha256 hex>.<secret>`),
 * it accepts exactly that certificate. Otherwise it uses no TLS on loopback, and elsewhere the authorities of the system or of
 * SKEIN_GRPC_TLS_CA. The token is only sent after that.
 */
import { checkServerIdentity, connect, createSecureContext } from 'node:tls'
import type { PeerCertificate } from 'node:tls'
import { ServiceError } from '#core/errors/index.ts'
import { dialOverTls, dialPinned, dialWithoutTls, fingerprintOf, hostOf, isLoopback, portOf } from '#proto/index.ts'
import type { ClientPair, Dialling } from '#proto/index.ts'

export type CredentialOptions = {
  token: string
  /** PEM of the authority that signed the server's certificate. */
  authority: string | undefined
  /** Plaintext to any address, for networks with other protection; a fingerprint overrides it. */
  isInsecure: boolean
  /** Fingerprint of an earlier token, for starts without one. */
  knownFingerprint: string | undefined
  /** The worker's current certificate; undefined without one. */
  shown: () => ClientPair | undefined
}

export type ManagerCredentials = {
  /** The secret for Register: the token without the fingerprint. */
  joinSecret: string
  /** SHA-256 of the certificate in hexadecimal; undefined: not pinned. */
  fingerprint: string | undefined
  /**
   * How to connect to an address (`host:port`). Rejects with `forbidden` if the server's certificate is not the one of
   * the token.
   */
  channel: (address: string) => Promise<Dialling>
  /** Whether connections to the address use TLS, so that a certificate can be presented. */
  isTls: (address: string) => boolean
}

const HANDSHAKE_DEADLINE_MS = 10_000
const TOKEN_WITH_FINGERPRINT = /^([0-9a-f]{64})\.(.+)$/i

export function createCredentials(options: CredentialOptions): ManagerCredentials {
  const match = TOKEN_WITH_FINGERPRINT.exec(options.token)
  const fingerprint = match?.[1]?.toLowerCase() ?? (options.token === '' ? options.knownFingerprint : undefined)
  // A configured authority implies TLS, also on loopback.
  const isTls = (address: string) =>
    fingerprint !== undefined || !(options.isInsecure || (options.authority === undefined && isLoopback(address)))
  return {
    joinSecret: match?.[2] ?? options.token,
    fingerprint,
    isTls,
    async channel(address) {
      if (!isTls(address)) return dialWithoutTls()
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
      `the certificate of ${address} does not match the join token; get a new token from that manager`,
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

/** A handshake without data, to read the certificate. */
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
      reject(new ServiceError('unavailable', `cannot reach ${address} over TLS: ${cause.message}`, { cause }))
    })
  })
}
