/**
 * Hosts that do not respond, and when to try them again: the pause grows with each timeout. Entries are kept per owner,
 * so that one owner's timeouts do not affect, or reveal anything to, another.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import { monotonicMs } from '#core/time.ts'

type Silence = { times: number; untilMs: number }

/** Maximum number of entries, one for each owner and host. */
const MAX_SILENT = 10_000
/** Number of retry delays that also apply to a host: after the third timeout it is skipped for the third delay. */
const LONGEST_PAUSE = 3
/** Less than the delay of the delivery, so that the next attempt finds the host available again. */
const SHARE_OF_PAUSE = 0.9

export type Reachability = {
  isSilent(ownerKey: number, contact: string): boolean
  /** Records a timeout. */
  wasSilent(ownerKey: number, contact: string): void
  hasAnswered(ownerKey: number, contact: string): void
}

export function createReachability(retrySeconds: readonly number[]): Reachability {
  const silences = new BoundedCache<string, Silence>({ maxEntries: MAX_SILENT })
  const nameOf = (ownerKey: number, contact: string) =>
    contact.includes('://') ? `${ownerKey} ${new URL(contact).host}` : undefined

  return {
    isSilent(ownerKey, contact) {
      const name = nameOf(ownerKey, contact)
      return name !== undefined && (silences.get(name)?.untilMs ?? 0) > monotonicMs()
    },
    wasSilent(ownerKey, contact) {
      const name = nameOf(ownerKey, contact)
      if (name === undefined) return
      const times = Math.min((silences.get(name)?.times ?? 0) + 1, LONGEST_PAUSE, retrySeconds.length)
      const pauseMs = (retrySeconds[times - 1] ?? 0) * 1000 * SHARE_OF_PAUSE
      silences.set(name, { times, untilMs: monotonicMs() + pauseMs })
    },
    hasAnswered(ownerKey, contact) {
      const name = nameOf(ownerKey, contact)
      if (name !== undefined) silences.delete(name)
    },
  }
}
