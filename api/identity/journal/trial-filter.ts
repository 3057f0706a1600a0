/**
 * The part of a tried change that a caller may see: the part of its records that the journal would show, and the entities that the change
 * creates.
 */
import type { Database } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { AccessPolicy, DomainAccess, UserPrincipal } from '../access/index.ts'
import type { JournalEntry } from './record.ts'
import type { TrialFilter } from './trial.ts'
import { visibilitiesOf } from './visibility.ts'
import type { JournalVisibility } from './visibility.ts'

export function createTrialFilter({ database, access }: { database: Database; access: AccessPolicy }): TrialFilter {
  const { db } = database

  async function enter(caller: UserPrincipal, domainKey: number): Promise<DomainAccess | undefined> {
    const { rows } = await sql<{ id: string }>`SELECT id FROM domains WHERE key = ${domainKey}`.execute(db)
    const [domain] = rows
    if (domain === undefined) return undefined
    return await access.enter(caller, domain.id).catch((error: unknown) => {
      if (kindOf(error) === 'forbidden') return undefined
      throw error
    })
  }

  return async (actor, entries) => {
    if (actor === 'system') return entries.map(() => 'none')
    // A token with scopes sees what it may read, although the call itself would change something.
    const caller = actor.origin === undefined ? actor : { ...actor, origin: { ...actor.origin, isReading: true } }
    const visible = new Map<JournalEntry, JournalVisibility>()
    for (const [domainKey, inDomain] of Map.groupBy(entries, (entry) => entry.domainKey)) {
      // Outside of a domain there are the caller's own account, and those of an administrator of the platform.
      const domain = domainKey === undefined ? undefined : await enter(caller, domainKey)
      const found = domain === undefined ? [] : await visibilitiesOf(db, domain, inDomain)
      for (const [at, entry] of inDomain.entries())
        visible.set(entry, domainKey === undefined || isCreation(entry) ? 'all' : (found[at] ?? 'none'))
    }
    return entries.map((entry) => visible.get(entry) ?? 'none')
  }
}

/** Entities that the caller creates exist only in the trial. */
const isCreation = ({ operation }: JournalEntry) => operation.endsWith('.create')
