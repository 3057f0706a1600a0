/**
 * TLS of our own listeners: the files of the settings, else a certificate that the authority makes at each start and renews
 * while it is used. Clients may present a certificate of the authority; whether it still counts is asked of the database, not
 * of a list.
 */
import { generateKeyPairSync } from 'node:crypto'
import { isIP } from 'node:net'
import { hostname } from 'node:os'
import type { TlsFiles } from '#core/http/index.ts'
import { CLOCK_SKEW_MS, newSerial } from './authority.ts'
import type { Authority } from './authority.ts'
import type { StatusUrls } from './make.ts'
import { makeCertificate, publicKeyDer } from './x509/certificate.ts'
import { pem } from './x509/der.ts'

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

/** The certificate that listeners of this process share. */
export type OwnTls = TlsFiles & {
  /** Makes another one when the present one is about to end. */
  renew(now: Date): void
}

export function createOwnTls(authority: Authority, urls: StatusUrls, names: readonly string[]): OwnTls {
  const make = (now: Date) => ({ files: makeServerTls(authority, urls, names, now), atMs: now.getTime() })
  const first = make(new Date())
  let current = first
  const listeners = new Set<(files: TlsFiles) => void>()
  return {
    ...first.files,
    follow(listener) {
      listeners.add(listener)
      if (current !== first) listener(current.files)
      return () => void listeners.delete(listener)
    },
    renew(now) {
      if (now.getTime() - current.atMs < (VALID_DAYS - RENEW_DAYS) * DAY_MS) return
      current = make(now)
      for (const listener of listeners) listener(current.files)
    },
  }
}

/** A certificate for these names and addresses. */
function makeServerTls(authority: Authority, urls: StatusUrls, names: readonly string[], now: Date): TlsFiles {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const notAfter = new Date(Math.min(now.getTime() + VALID_DAYS * DAY_MS, authority.notAfter.getTime()))
  const der = makeCertificate(
    {
      purpose: 'server',
      serial: newSerial(),
      subject: { commonName: (names[0] ?? 'localhost').slice(0, MAX_COMMON_NAME_CHARS) },
      names: {
        dnsNames: names.filter((name) => isIP(name) === 0),
        ipAddresses: names.filter((name) => isIP(name) !== 0),
      },
      publicKey: publicKeyDer(privateKey),
      notBefore: new Date(now.getTime() - CLOCK_SKEW_MS),
      notAfter,
      crlUrl: urls.crlUrl,
    },
    authority,
  )
  const key = Buffer.from(privateKey.export({ type: 'pkcs8', format: 'pem' }))
  return trusting({ cert: Buffer.from(pem('CERTIFICATE', der) + authority.chain), key }, authority)
}
