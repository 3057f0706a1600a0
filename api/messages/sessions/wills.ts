/** The stored form of a will: the payload in its own column, everything else as JSON. */
import type { StoredWill } from './rows.ts'

export function formatWill({ payload: _payload, ...facts }: StoredWill): Omit<StoredWill, 'payload'> {
  return facts
}

/** Parses values of our own table. */
export function parseWill(facts: unknown, payload: Buffer | null): StoredWill | undefined {
  if (facts === null || facts === undefined) return undefined
  return { ...(facts as Omit<StoredWill, 'payload'>), payload: payload ?? Buffer.alloc(0) }
}
