/**
 * The worker's own certificate: its key never leaves the data folder, the manager signs a request for it at the first
 * registration over TLS, and from then on the worker shows it at every connection. A renewal makes a new key.
 */
import { X509Certificate } from 'node:crypto'
import { open, readFile, rename, rm } from 'node:fs/promises'
import type { ClientPair, IssuedCertificate } from '#proto/index.ts'

/** Of its time, before it is renewed. */
const RENEW_AFTER = 2 / 3

type Validity = { fromMs: number; toMs: number }

export class ClientCertificate {
  readonly #path: string
  #shown: ClientPair | undefined
  #validity: Validity | undefined
  /** Of the request that was made last; in use when the certificate comes. */
  #pendingKey: string | undefined

  private constructor(path: string) {
    this.#path = path
  }

  /** What an earlier process left in the file: key and certificate, PEM. */
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

  /** By the wall clock; undefined while there is none. */
  get endsAt(): Date | undefined {
    return this.#validity && new Date(this.#validity.toMs)
  }

  /** True when there is one and its time is over by the wall clock: nobody takes it any more. */
  hasEnded(nowMs: number): boolean {
    return this.#validity !== undefined && nowMs >= this.#validity.toMs
  }

  /** True when there is none, or most of its time is over. */
  isDue(nowMs: number): boolean {
    if (this.#validity === undefined) return true
    const { fromMs, toMs } = this.#validity
    return nowMs >= fromMs + RENEW_AFTER * (toMs - fromMs)
  }

  /** A PKCS #10 request (DER) for a new key. */
  async request(): Promise<Uint8Array> {
    // Loaded by the few who make a request.
    const { SigningKey, makeSigningRequest } = await import('#core/x509/index.ts')
    const key = SigningKey.generate()
    this.#pendingKey = key.toPem()
    return new Uint8Array(await makeSigningRequest('skein worker', key))
  }

  /** On disk when it resolves; shown from the next connection on. */
  async accept(issued: IssuedCertificate): Promise<void> {
    const key = this.#pendingKey
    if (key === undefined) return
    this.#pendingKey = undefined
    const draft = `${this.#path}.new`
    const file = await open(draft, 'w', 0o600)
    try {
      await file.writeFile(key + issued.certificatePem)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(draft, this.#path)
    this.#use({ key, cert: issued.certificatePem })
  }

  /** The worker becomes another one. */
  async forget(): Promise<void> {
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
