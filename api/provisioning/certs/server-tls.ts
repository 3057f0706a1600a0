/**
 * TLS of our own listeners: the files of the settings, else a certificate that the authority makes at each start and renews
 * while it is used. Clients may present a certificate of the authority; whether it still counts is asked of the database, not
 * of a list.
 */
import { isIP } from 'node:net'
import { hostname } from 'node:os'
import type { TlsFiles } from '#core/http/index.ts'
import { SigningKey, makeCertificate, newSerial, pem } from '#core/x509/index.ts'
import { CLOCK_SKEW_MS } from './authority.ts'
import type { Authority } from './authority.ts'
import type { StatusUrls } from './make.ts'

/** Some systems believe no longer one. */
const VALID_DAYS = 398
/** Renewed when so much is left: a device whose clock is ahead, and one that keeps its connection, notice nothing. */
const RENEW_DAYS = 90
const DAY_MS = 86_400_000
const MAX_COMMON_NAME_CHARS = 64

/** What this machine is called where nobody said it, and what people call it. */
export function ownNames(publicUrl: string): string[] {
  const known = new URL(publicUrl).hostname.replaceAll(/[[\]]/g, '')
  return [...new Set(['localhost', hostname(), '127.0.0.1', '::1', known])]
}

/** The files with the authority among those whose clients are believed. */
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

/** The certificate that listeners of this process share. */
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
    return new OwnTls({ files: await makeServerTls(...parameters, now), madeAt: now }, ...parameters)
  }

  /** The files that are good now, and those that follow them. */
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

  /** Makes another certificate when the present one is about to end. */
  async renew(now: Date): Promise<void> {
    if (now.getTime() - this.#current.madeAt.getTime() < (VALID_DAYS - RENEW_DAYS) * DAY_MS) return
    const files = await makeServerTls(this.#authority, this.#urls, this.#names, now)
    this.#current = { files, madeAt: now }
    for (const listener of this.#listeners) listener(files)
  }
}

/** A certificate for these names and addresses. */
async function makeServerTls(
  authority: Authority,
  urls: StatusUrls,
  names: readonly string[],
  now: Date,
): Promise<TlsFiles> {
  const key = SigningKey.generate()
  const notAfter = new Date(Math.min(now.getTime() + VALID_DAYS * DAY_MS, authority.notAfter.getTime()))
  const der = await makeCertificate(
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
