/**
 * Authentication between workers of one site. Over TLS each presents the certificate from the manager, and requires the
 * one of the worker that the manager named; without TLS to the manager there are no certificates. A module is sent only
 * for a ticket of the manager for it and the caller.
 */
import { createSecureContext } from 'node:tls'
import type { SecureContextOptions } from 'node:tls'
import { createTicketVerifier, dialOverTls, dialWithoutTls } from '#proto/index.ts'
import type { ClientPair, Dialling, TicketGrant, TicketVerifier } from '#proto/index.ts'
import type { Peer } from './module-request.ts'

/** TLS options for incoming connections. */
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

  /** Applies the data of a registration, and the current certificate of the worker. */
  update({ ticketKey, authorityPem }: { ticketKey: Uint8Array; authorityPem: string }): void {
    this.#verify = ticketKey.length === 0 ? undefined : createTicketVerifier(ticketKey)
    this.#authority = authorityPem
    this.useNewCertificate()
  }

  /** The worker has another certificate: later connections use it. */
  useNewCertificate(): void {
    const certificates = this.#certificates()
    if (certificates !== undefined) for (const listener of this.#listeners) listener(certificates)
  }

  /** The permission of a ticket; undefined: invalid, expired, or not verifiable yet. */
  verifyTicket(ticket: string, nowSeconds: number): TicketGrant | undefined {
    return this.#verify?.(ticket, nowSeconds)
  }

  /** Undefined: this worker has no certificate, or does not know the authority. */
  dial({ address, workerId }: Peer): Dialling | undefined {
    if (!this.#isTls) return dialWithoutTls()
    const shown = this.#shown()
    if (shown === undefined || this.#authority === '') return undefined
    const context = createSecureContext({ ca: this.#authority, ...shown })
    return dialOverTls(address, context, (_name, seen) =>
      seen.subject.CN === workerId ? undefined : new Error('the certificate belongs to another worker'),
    )
  }

  /**
   * Passes the certificates to a listener, now if available and after each change, until the returned function is called.
   */
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
