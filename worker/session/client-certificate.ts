/**
 * The worker's own certificate: its key never leaves the data folder, the manager signs a request for it at the first
 * registration over TLS, and the worker then presents it on every connection. A renewal creates a new key.
 */
import { X509Certificate } from 'node:crypto'
import { readFile, rm } from 'node:fs/promises'
import { replaceFile } from '#core/sync-folder.ts'
import type { ClientPair, IssuedCertificate } from '#proto/index.ts'

/** Share of the validity after which it is renewed. */
const RENEW_AFTER = 2 / 3

type Validity = { fromMs: number; toMs: number }

export class ClientCertificate {
  readonly #path: string
  #shown: ClientPair | undefined
  #validity: Validity | undefined
  /** Key of the last request; used when its certificate arrives. */
  #pendingKey: string | undefined

  private constructor(path: string) {
    this.#path = path
  }

  /** Loads key and certificate (PEM) of an earlier process from the file. */
  static async open(path: string): Promise<ClientCertificate> {
    const certificate = new ClientCertificate(path)
    const text = await readFile(path, 'utf8').catch(() => '')
    const [key, cert] = text.split(/(?=-----BEGIN CERTIFICATE-----)/, 2)
    try {
      if (key !== undefined && cert !== undefined) certificate.#use({ key, cert })
    } catch {
      // A damaged file is as good as none; the manager then says that a certificate must be shown.
    }
    return certificate
  }

  get shown(): ClientPair | undefined {
    return this.#shown
  }

  /** The end of the certificate, by the wall clock; undefined without a certificate. */
  get endsAt(): Date | undefined {
    return this.#validity && new Date(this.#validity.toMs)
  }

  /** True if the certificate has expired by the wall clock. */
  hasEnded(nowMs: number): boolean {
    return this.#validity !== undefined && nowMs >= this.#validity.toMs
  }

  /** True without a certificate, or if most of its validity is over. */
  isDue(nowMs: number): boolean {
    if (this.#validity === undefined) return true
    const { fromMs, toMs } = this.#validity
    return nowMs >= fromMs + RENEW_AFTER * (toMs - fromMs)
  }

  /** A PKCS #10 request (DER) for a new key. */
  async request(): Promise<Uint8Array> {
    // These functions are loaded on demand, because requests are rare.
    const { SigningKey, createSigningRequest } = await import('#x509/index.ts')
    const key = SigningKey.generate()
    this.#pendingKey = key.toPem()
    return new Uint8Array(await createSigningRequest('skein worker', key))
  }

  /** The certificate is synced when this resolves; it is used from the next connection on. */
  async accept(issued: IssuedCertificate): Promise<void> {
    const key = this.#pendingKey
    if (key === undefined) return
    this.#pendingKey = undefined
    await replaceFile(this.#path, key + issued.certificatePem, 0o600)
    this.#use({ key, cert: issued.certificatePem })
  }

  /** Discards it, because the worker gets a new identity. */
  async discard(): Promise<void> {
    await rm(this.#path, { force: true })
    this.#shown = undefined
    this.#validity = undefined
  }

  #use(pair: ClientPair): void {
    const certificate = new X509Certificate(pair.cert)
    this.#shown = pair
    this.#validity = { fromMs: Date.parse(certificate.validFrom), toMs: Date.parse(certificate.validTo) }
  }
}
