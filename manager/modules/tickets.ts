/**
 * The proxy token and what is derived from it: tickets, which say that a worker may read a module. All managers of one
 * installation make the same ones, so a ticket outlives a move of its worker to another manager.
 */
import { createLru } from '#core/lru.ts'
import { Secret } from '#core/config/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { createTicketSigner, createTicketVerifier } from '#proto/index.ts'
import type { TicketGrant, TicketVerifier } from '#proto/index.ts'

export type TicketOffice = {
  /** DER: what workers check the tickets of others with. */
  readonly publicKey: Buffer
  readonly verify: TicketVerifier
  /** A ticket that is good for at least half of its life. */
  ticketFor(grant: TicketGrant): string
}

/** A worker that was without a network for a while still gets the module of what it was assigned before. */
const TICKET_LIFE_SECONDS = 24 * 3600
/** Runs of one module on one worker share a ticket, so that a start costs no signature. */
const REMEMBERED_TICKETS = 20_000

/** The token of the setting, or the one that follows from the installation's secret key. */
export function proxyTokenOf(configured: Secret | undefined, keyring: Keyring): Secret {
  return configured ?? new Secret(keyring.mac('proxy token', 'module proxy').toString('base64url'))
}

export function createTicketOffice(proxyToken: Secret, nowMs: () => number = Date.now): TicketOffice {
  const signer = createTicketSigner(proxyToken.reveal())
  const made = createLru<string, { ticket: string; renewSeconds: number }>(REMEMBERED_TICKETS)
  return {
    publicKey: signer.publicKey,
    verify: createTicketVerifier(signer.publicKey),
    ticketFor(grant) {
      const key = `${grant.workerId} ${grant.digest} ${grant.reference}`
      const nowSeconds = Math.floor(nowMs() / 1000)
      const known = made.get(key)
      if (known !== undefined && nowSeconds < known.renewSeconds) return known.ticket
      const ticket = signer.sign(grant, nowSeconds + TICKET_LIFE_SECONDS)
      made.set(key, { ticket, renewSeconds: nowSeconds + TICKET_LIFE_SECONDS / 2 })
      return ticket
    },
  }
}
