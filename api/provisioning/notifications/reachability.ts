/**
 * Which hosts do not answer, and until when they are left alone: with each silence for longer, as the pauses between attempts
 * grow. For each owner by himself: what one of them meets at an address that he chose says nothing to another one.
 */
import { LRUCache } from 'lru-cache'
import { monotonicMs } from '#core/time.ts'

type Silence = { times: number; untilMs: number }

/** Of owners and hosts together. */
const MAX_SILENT = 10_000
/** Pauses of an attempt that a host has too: at the third silence it is left alone for the third one, and so on. */
const LONGEST_PAUSE = 3
/** Below the pause of the attempt itself, which then finds the host open again. */
const SHARE_OF_PAUSE = 0.9

export type Reachability = {
  isSilent(ownerKey: number, contact: string): boolean
  /** Nobody answered in time. */
  wasSilent(ownerKey: number, contact: string): void
  hasAnswered(ownerKey: number, contact: string): void
}

export function createReachability(retrySeconds: readonly number[]): Reachability {
  const silences = new LRUCache<string, Silence>({ max: MAX_SILENT })
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
