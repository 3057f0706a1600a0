/** SQL of events: records of the journal in the order of their positions. */
import type { Queryable } from '#core/database/index.ts'
import { findPosition, readSettled } from '#core/changelog/index.ts'
import type { LogRow, LogTable, Position } from '#core/changelog/index.ts'
import { sql } from '#core/sql.ts'
import { REMOVED_POSITION } from '../journal/index.ts'
import type { EventRecord } from './event.ts'

export const EVENT_LOG: LogTable = {
  name: 'journal',
  columns: [
    'operation',
    'domain_key',
    'actor_id',
    'request_id',
    'token_type',
    'super_admin',
    'entity_keys',
    'attributes',
    '(extract(epoch FROM occurred_at) * 1000000)::bigint AS occurred_us',
  ],
}

/** Returns the ids of the domains of these records, also of removed domains. */
async function findDomainIds(db: Queryable, keys: readonly number[]): Promise<ReadonlyMap<number, string>> {
  if (keys.length === 0) return new Map()
  const { rows } = await sql<{ key: number; id: string }>`
    SELECT key, id FROM domains WHERE key = ANY (${keys}::bigint[])
    UNION ALL SELECT key, id FROM removed_entities WHERE key = ANY (${keys}::bigint[])`.execute(db)
  return new Map(rows.map(({ key, id }) => [key, id]))
}

export async function toEventRecords(db: Queryable, rows: readonly LogRow[]): Promise<EventRecord[]> {
  const keys = new Set(rows.map((row) => row['domain_key'] as number | null).filter((key) => key !== null))
  const domainIds = await findDomainIds(db, [...keys])
  return rows.map((row) => {
    const domainKey = row['domain_key'] as number | null
    return {
      position: row.position,
      operation: row['operation'] as string,
      occurredAtUs: row['occurred_us'] as number,
      domainKey,
      domainId: domainKey === null ? null : (domainIds.get(domainKey) ?? null),
      actorId: row['actor_id'] as string | null,
      tokenType: row['token_type'] as string | null,
      superAdmin: row['super_admin'] as boolean,
      requestId: row['request_id'] as string | null,
      entityKeys: (row['entity_keys'] as (string | number)[]).map(Number),
      attributes: row['attributes'] as Record<string, unknown>,
    }
  })
}

/** Returns the records of one domain after `after`, up to `until`, oldest first. */
export async function readDomainEvents(
  db: Queryable,
  domainKey: number,
  range: { after: Position; until: Position; limit: number },
): Promise<EventRecord[]> {
  const rows = await readSettled(db, EVENT_LOG, range.after, range.limit, {
    where: sql<boolean>`domain_key = ${domainKey}`,
    until: range.until,
  })
  return await toEventRecords(db, rows)
}

/** Returns the position up to which retention removed records. Undefined when nothing was removed yet. */
export async function findRemovedPosition(db: Queryable): Promise<Position | undefined> {
  return await findPosition(db, REMOVED_POSITION)
}
