/**
 * How workers of one site know each other. Over TLS each shows the certificate that the manager gave it, and takes the one
 * of the worker that the manager named; where the manager itself is spoken to without TLS there is none. A module is given
 * for a ticket of the manager that names it and the asker.
 */
import { createSecureContext } from 'node:tls'
import { ServerCredentials, experimental } from '@grpc/grpc-js'
import { createTicketVerifier, dialOverTls, dialPlainly } from '#proto/index.ts'
import type { ClientPair, Dialling, TicketVerifier } from '#proto/index.ts'
import type { Peer } from './wanted.ts'

type IdentityListener = (identity: { certificate: Buffer; privateKey: Buffer } | null) => void
type AuthorityListener = (authority: { caCertificate: Buffer } | null) => void

export class SiteTrust {
  readonly #isTls: boolean
  readonly #shown: () => ClientPair | undefined
  readonly #identityListeners = new Set<IdentityListener>()
  readonly #authorityListeners = new Set<AuthorityListener>()
  #authority = ''
  #verify: TicketVerifier | undefined

  constructor({ isTls, shown }: { isTls: boolean; shown: () => ClientPair | undefined }) {
    this.#isTls = isTls
    this.#shown = shown
  }

  get isTls(): boolean {
    return this.#isTls
  }

  /** What a registration said, and whatever certificate the worker has now. */
  learn({ ticketKey, authorityPem }: { ticketKey: Uint8Array; authorityPem: string }): void {
    this.#verify = ticketKey.length === 0 ? undefined : createTicketVerifier(ticketKey)
    this.#authority = authorityPem
    this.showAnew()
  }

  /** The worker has another certificate: connections that are made from now on see it. */
  showAnew(): void {
    for (const listener of this.#authorityListeners) this.#tellAuthority(listener)
    for (const listener of this.#identityListeners) this.#tellIdentity(listener)
  }

  /** The worker that the ticket names; undefined: it is no ticket for this module, or nobody can say yet. */
  readonly verifyTicket: TicketVerifier = (ticket, wanted, nowSeconds) => this.#verify?.(ticket, wanted, nowSeconds)

  /** Undefined: this worker has no certificate to show, or does not know the authority of others. */
  dial({ address, workerId }: Peer): Dialling | undefined {
    if (!this.#isTls) return dialPlainly()
    const shown = this.#shown()
    if (shown === undefined || this.#authority === '') return undefined
    const context = createSecureContext({ ca: this.#authority, ...shown })
    return dialOverTls(address, context, (_name, seen) =>
      seen.subject.CN === workerId ? undefined : new Error('the certificate is that of another worker'),
    )
  }

  /** Takes connections of those alone that show a certificate of the authority. */
  listener(): ServerCredentials {
    if (!this.#isTls) return ServerCredentials.createInsecure()
    const provider: experimental.CertificateProvider = {
      // Told a moment later: grpc-js counts a listener's first news only once it has added its own watcher.
      addCaCertificateListener: (listener) => {
        this.#authorityListeners.add(listener)
        queueMicrotask(() => this.#tellAuthority(listener))
      },
      addIdentityCertificateListener: (listener) => {
        this.#identityListeners.add(listener)
        queueMicrotask(() => this.#tellIdentity(listener))
      },
      removeCaCertificateListener: (listener) => this.#authorityListeners.delete(listener),
      removeIdentityCertificateListener: (listener) => this.#identityListeners.delete(listener),
    }
    return experimental.createCertificateProviderServerCredentials(provider, provider, true)
  }

  #tellAuthority(listener: AuthorityListener): void {
    if (this.#authority !== '') listener({ caCertificate: Buffer.from(this.#authority) })
  }

  #tellIdentity(listener: IdentityListener): void {
    const shown = this.#shown()
    if (shown !== undefined) listener({ certificate: Buffer.from(shown.cert), privateKey: Buffer.from(shown.key) })
  }
}
