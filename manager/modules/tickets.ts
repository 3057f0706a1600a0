/**
 * The proxy token and the tickets derived from it, with which a worker or a caller can pull one module. All managers of
 * one installation create the same tickets, so a ticket stays valid when its worker moves to another manager.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import { Secret } from '#core/config/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { createTicketSigner, createTicketVerifier } from '#proto/index.ts'
import type { TicketGrant, TicketSigner, TicketVerifier } from '#proto/index.ts'

/** This is long enough that a worker can fetch the module of an assignment after an interruption of its network. */
const WORKER_TICKET_SECONDS = 24 * 3600
const READ_TICKET_SECONDS = 3600
/** Runs of one module on one worker share a ticket, so that a start costs no signature. */
const MAX_CACHED_TICKETS = 20_000

/** The token of the setting, or the one derived from the installation's secret key. */
export function proxyTokenOf(configured: Secret | undefined, keyring: Keyring): Secret {
  return configured ?? new Secret(keyring.mac('proxy token', 'module proxy').toString('base64url'))
}

export class TicketIssuer {
  readonly #signer: TicketSigner
  readonly #nowMs: () => number
  readonly #issued = new BoundedCache<string, { ticket: string; renewSeconds: number }>({
    maxEntries: MAX_CACHED_TICKETS,
  })
  readonly verify: TicketVerifier

  constructor(proxyToken: Secret, nowMs: () => number = Date.now) {
    this.#signer = createTicketSigner(proxyToken.reveal())
    this.#nowMs = nowMs
    this.verify = createTicketVerifier(this.#signer.publicKey)
  }

  /** DER: workers verify tickets of other workers with it. */
  get publicKey(): Buffer {
    return this.#signer.publicKey
  }

  /** A ticket of a worker with at least half of its lifetime left. */
  forWorker(workerId: string, module: Omit<TicketGrant, 'reader'>): string {
    const key = `${workerId} ${module.digest} ${module.reference}`
    const nowSeconds = this.#nowSeconds()
    const known = this.#issued.get(key)
    if (known !== undefined && nowSeconds < known.renewSeconds) return known.ticket
    const ticket = this.#signer.sign({ ...module, reader: `worker:${workerId}` }, nowSeconds + WORKER_TICKET_SECONDS)
    this.#issued.set(key, { ticket, renewSeconds: nowSeconds + WORKER_TICKET_SECONDS / 2 })
    return ticket
  }

  /** A ticket of a caller who can read the module in this domain; null: of the platform. */
  forReader(domainId: string | null, module: Omit<TicketGrant, 'reader'>): { ticket: string; expiresAt: Date } {
    const expiresSeconds = this.#nowSeconds() + READ_TICKET_SECONDS
    const reader = domainId === null ? 'platform' : `domain:${domainId}`
    return {
      ticket: this.#signer.sign({ ...module, reader }, expiresSeconds),
      expiresAt: new Date(expiresSeconds * 1000),
    }
  }

  /** The permission of a presented ticket; undefined if it is invalid. */
  check(ticket: string): TicketGrant | undefined {
    return this.verify(ticket, this.#nowSeconds())
  }

  #nowSeconds(): number {
    return Math.floor(this.#nowMs() / 1000)
  }
}
