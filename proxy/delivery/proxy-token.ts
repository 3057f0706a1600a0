/**
 * The token that manager and proxy share: from the setting, or from the file that a manager with the same data folder
 * writes. It authenticates managers, and the key of the tickets is derived from it.
 */
import { readFile } from 'node:fs/promises'
import type { Secret } from '#core/config/index.ts'
import { monotonicMs } from '#core/time.ts'
import { createTicketSigner, createTicketVerifier } from '#proto/index.ts'
import type { TicketSigner, TicketVerifier } from '#proto/index.ts'

export type KnownToken = { token: string; signer: TicketSigner; verifyTicket: TicketVerifier }

export type ProxyToken = {
  /** Undefined: neither the setting nor the file exists. */
  current(): Promise<KnownToken | undefined>
  /** Returns the same as `current` after it has read the file again: a manager may have written it since. */
  renewed(): Promise<KnownToken | undefined>
}

/** Callers with wrong tokens cannot make the proxy read the file more often. */
const REREAD_MS = 1_000

export function createProxyToken(configured: Secret | undefined, file: string): ProxyToken {
  let known = configured === undefined ? undefined : knownToken(configured.reveal())
  let nextReadMs = 0

  async function renewed(): Promise<KnownToken | undefined> {
    if (configured !== undefined || monotonicMs() < nextReadMs) return known
    nextReadMs = monotonicMs() + REREAD_MS
    const text = await readFile(file, 'utf8').catch(() => '')
    if (text.trim() !== '' && text.trim() !== known?.token) known = knownToken(text.trim())
    return known
  }

  return { renewed, current: async () => known ?? (await renewed()) }
}

function knownToken(token: string): KnownToken {
  const signer = createTicketSigner(token)
  return { token, signer, verifyTicket: createTicketVerifier(signer.publicKey) }
}
