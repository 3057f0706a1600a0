/**
 * TLS of the platform's listeners: the files of the settings, or a certificate that the authority issues at each start
 * and renews while it is used. Clients can present a certificate of the authority. Its validity is checked in the
 * database, not with a revocation list.
 */
import { isIP } from 'node:net'
import { hostname } from 'node:os'
import type { TlsFiles } from '#http/index.ts'
import { SigningKey, createCertificate, newSerial, pem } from '#x509/index.ts'
import { CLOCK_SKEW_MS } from './authority.ts'
import type { Authority } from './authority.ts'
import type { StatusUrls } from './issue.ts'

/** Some systems reject certificates with a longer lifetime. */
const VALID_DAYS = 398
/**
 * Remaining lifetime at which it is renewed: early enough for devices with fast clocks and for long-lived connections.
 */
const RENEW_DAYS = 90
const DAY_MS = 86_400_000
const MAX_COMMON_NAME_CHARS = 64

/** The default names of this machine, and the host of the public URL. */
export function ownNames(publicUrl: string): string[] {
  const known = new URL(publicUrl).hostname.replaceAll(/[[\]]/g, '')
  return [...new Set(['localhost', hostname(), '127.0.0.1', '::1', known])]
}

/** Adds the authority to the trusted authorities for client certificates. */
export function trusting(files: TlsFiles, authority: Authority): TlsFiles {
  const chain = Buffer.from(authority.chain)
  const { follow } = files
  return {
    ...files,
    ca: files.ca === undefined ? chain : Buffer.concat([files.ca, Buffer.from('\n'), chain]),
    ...(follow === undefined
      ? {}
      : { follow: (listener) => follow((renewed) => listener(trusting(renewed, authority))) }),
  }
}

type OwnTlsParameters = [authority: Authority, urls: StatusUrls, names: readonly string[]]

/** The certificate that the listeners of this process share. */
export class OwnTls {
  readonly #authority: Authority
  readonly #urls: StatusUrls
  readonly #names: readonly string[]
  readonly #listeners = new Set<(files: TlsFiles) => void>()
  #current: { files: TlsFiles; madeAt: Date }

  private constructor(made: { files: TlsFiles; madeAt: Date }, ...[authority, urls, names]: OwnTlsParameters) {
    this.#current = made
    this.#authority = authority
    this.#urls = urls
    this.#names = names
  }

  static async make(...parameters: OwnTlsParameters): Promise<OwnTls> {
    const now = new Date()
    return new OwnTls({ files: await createServerTls(...parameters, now), madeAt: now }, ...parameters)
  }

  /** The current files, and a way to follow their renewals. */
  get files(): TlsFiles {
    const first = this.#current.files
    return {
      ...first,
      follow: (listener) => {
        this.#listeners.add(listener)
        if (this.#current.files !== first) listener(this.#current.files)
        return () => void this.#listeners.delete(listener)
      },
    }
  }

  /** Issues another certificate when the current one is about to expire. */
  async renew(now: Date): Promise<void> {
    if (now.getTime() - this.#current.madeAt.getTime() < (VALID_DAYS - RENEW_DAYS) * DAY_MS) return
    const files = await createServerTls(this.#authority, this.#urls, this.#names, now)
    this.#current = { files, madeAt: now }
    for (const listener of this.#listeners) listener(files)
  }
}

/** Issues a certificate for these names and addresses. */
async function createServerTls(
  authority: Authority,
  urls: StatusUrls,
  names: readonly string[],
  now: Date,
): Promise<TlsFiles> {
  const key = SigningKey.generate()
  const notAfter = new Date(Math.min(now.getTime() + VALID_DAYS * DAY_MS, authority.notAfter.getTime()))
  const der = await createCertificate(
    {
      purpose: 'server',
      serial: newSerial(),
      subject: { commonName: (names[0] ?? 'localhost').slice(0, MAX_COMMON_NAME_CHARS) },
      names: {
        dnsNames: names.filter((name) => isIP(name) === 0),
        ipAddresses: names.filter((name) => isIP(name) !== 0),
      },
      publicKey: key.publicKey,
      notBefore: new Date(now.getTime() - CLOCK_SKEW_MS),
      notAfter,
      crlUrl: urls.crlUrl,
    },
    authority,
  )
  const cert = Buffer.from(pem('CERTIFICATE', der) + authority.chain)
  return trusting({ cert, key: Buffer.from(key.toPem()) }, authority)
}
