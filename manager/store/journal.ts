/** Records of changes of the manager. Those of one statement are written by it, with `recordManaged`. */
import { insertRecords } from '#api/identity/index.ts'
import type { Actor, JournalEntry } from '#api/identity/index.ts'
import type { Queryable } from '#core/database/index.ts'

export type ManagerRecord = { actor: Actor; entry: JournalEntry }

/** A change of what has no journal of its own: it is in the journals of its domain and its user. */
export function domainRecord(
  actor: Actor,
  domainKey: number | null,
  { operation, attributes }: Pick<JournalEntry, 'operation' | 'attributes'>,
): ManagerRecord {
  const entry = { operation, entityKeys: [], ...(attributes === undefined ? {} : { attributes }) }
  return { actor, entry: domainKey === null ? entry : { ...entry, domainKey } }
}

/**
 * Writes the records in the transaction of the changes. Nobody could read a record without a domain and a user, so it is left out, except
 * that of a worker, which belongs to the platform.
 */
export async function writeRecords(db: Queryable, records: readonly ManagerRecord[]): Promise<void> {
  await insertRecords(
    db,
    records.filter(
      ({ actor, entry }) =>
        actor !== 'system' || entry.domainKey !== undefined || entry.operation.startsWith('worker.'),
    ),
  )
}
