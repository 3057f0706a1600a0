/** A will as it lies in its row: the payload in a column of its own, everything else as JSON. */
import type { StoredWill } from './rows.ts'

export function formatWill({ payload: _payload, ...facts }: StoredWill): Omit<StoredWill, 'payload'> {
  return facts
}

/** Of our own table. */
export function parseWill(facts: unknown, payload: Buffer | null): StoredWill | undefined {
  if (facts === null || facts === undefined) return undefined
  return { ...(facts as Omit<StoredWill, 'payload'>), payload: payload ?? Buffer.alloc(0) }
}
