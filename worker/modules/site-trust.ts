/**
 * How workers of one site know each other. Over TLS each shows the certificate that the manager gave it, and takes the one
 * of the worker that the manager named; where the manager itself is spoken to without TLS there is none. A module is given
 * for a ticket of the manager that names it and the asker.
 */
import { createSecureContext } from 'node:tls'
import type { SecureContextOptions } from 'node:tls'
import { createTicketVerifier, dialOverTls, dialPlainly } from '#proto/index.ts'
import type { ClientPair, Dialling, TicketGrant, TicketVerifier } from '#proto/index.ts'
import type { Peer } from './module-request.ts'

/** What connections that come in are taken with. */
export type ListenerCertificates = Pick<SecureContextOptions, 'ca' | 'cert' | 'key'>

export class SiteTrust {
  readonly #isTls: boolean
  readonly #shown: () => ClientPair | undefined
  readonly #listeners = new Set<(certificates: ListenerCertificates) => void>()
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
    this.useNewCertificate()
  }

  /** The worker has another certificate: connections that are made from now on see it. */
  useNewCertificate(): void {
    const certificates = this.#certificates()
    if (certificates !== undefined) for (const listener of this.#listeners) listener(certificates)
  }

  /** What a ticket allows; undefined: it is none, has expired, or nobody can say yet. */
  verifyTicket(ticket: string, nowSeconds: number): TicketGrant | undefined {
    return this.#verify?.(ticket, nowSeconds)
  }

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

  /** Tells the certificates of a listener, now where there are some and whenever they change, until the returned call. */
  follow(listener: (certificates: ListenerCertificates) => void): () => void {
    this.#listeners.add(listener)
    const certificates = this.#certificates()
    if (certificates !== undefined) listener(certificates)
    return () => void this.#listeners.delete(listener)
  }

  #certificates(): ListenerCertificates | undefined {
    const shown = this.#shown()
    return shown === undefined || this.#authority === '' ? undefined : { ca: this.#authority, ...shown }
  }
}
