/**
 * Tasks, workflows and workers in the journal. The manager records their changes in the transactions of the changes. Their
 * tables count keys of their own, so each type has a range in the journal, above the keys of all other entities: there, too, a
 * key alone says which entity is meant.
 */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { DomainAction } from '../access/index.ts'
import type { Actor, JournalEntry } from './record.ts'
import { actorColumns } from './record.ts'

/** The keys of one type. Four ranges are below 2^53, so a number holds each key exactly. */
const KEYS_OF_TYPE = 2 ** 50

/** `action`: what a caller needs to read the entity and its journal. */
export const MANAGED = {
  task: { table: 'tasks', action: 'task_read', firstKey: KEYS_OF_TYPE },
  workflow: { table: 'workflows', action: 'task_read', firstKey: 2 * KEYS_OF_TYPE },
  worker: { table: 'workers', action: 'worker_read', firstKey: 3 * KEYS_OF_TYPE },
} as const satisfies Record<string, { table: string; action: DomainAction; firstKey: number }>

export type ManagedType = keyof typeof MANAGED

export const isManagedType = (type: string): type is ManagedType => Object.hasOwn(MANAGED, type)

/** A row of one of the tables. */
type ManagedRow = { key: number; id: string; name: string; domainKey: number | null }
type ManagedChange = { type: ManagedType; change: string; attributes?: Readonly<Record<string, unknown>> }

/** The record of a change. */
export function managedEntry(row: ManagedRow, { type, change, attributes = {} }: ManagedChange): JournalEntry {
  return {
    operation: `${type}.${change}`,
    entityKeys: [MANAGED[type].firstKey + row.key],
    ...(row.domainKey === null ? {} : { domainKey: row.domainKey }),
    attributes: { id: row.id, name: row.name, ...attributes },
  }
}

const COLUMNS = sql`actor_kind, actor_key, actor_id, address, request_id, token_type, super_admin, operation, domain_key, entity_keys,
  attributes`

/**
 * A part of the statement of a change: records it for each row of the common table expression, `changed` by default, which has the
 * columns key, id, name and domain_key. `attributes` contain no secret. Without a domain and a user nobody could read the record, so it
 * is not written.
 */
export function recordManaged(
  actor: Actor,
  { type, change, attributes = {} }: ManagedChange,
  expression = 'changed',
): Sql {
  const who = actorColumns(actor)
  return sql`INSERT INTO journal (${COLUMNS})
    SELECT ${who.actor_kind}, ${who.actor_key}::bigint, ${who.actor_id}::uuid, ${who.address}, ${who.request_id}, ${who.token_type},
      ${who.super_admin}::boolean, ${`${type}.${change}`}, domain_key, ARRAY[key + ${sql.raw(String(MANAGED[type].firstKey))}],
      jsonb_build_object('id', id, 'name', name) || ${JSON.stringify(attributes)}::jsonb
    FROM ${sql.table(expression)} WHERE domain_key IS NOT NULL OR ${who.actor_key}::bigint IS NOT NULL`
}

/** The types of the columns that `actorColumns` returns. */
export const ACTOR_COLUMNS = sql.raw(
  'actor_kind text, actor_key bigint, actor_id uuid, address text, request_id text, token_type text, super_admin boolean',
)

/**
 * Does the same as `recordManaged` for changes of several actors. The expression also has the columns of `actorColumns`, and `attributes`,
 * which is NULL if there are none.
 */
export function recordManagedOfMany({ type, change }: Omit<ManagedChange, 'attributes'>, expression: string): Sql {
  return sql`INSERT INTO journal (${COLUMNS})
    SELECT actor_kind, actor_key, actor_id, address, request_id, token_type, super_admin, ${sql.raw(`'${type}.${change}'`)}, domain_key,
      ARRAY[key + ${sql.raw(String(MANAGED[type].firstKey))}], jsonb_build_object('id', id, 'name', name) || coalesce(attributes, '{}')
    FROM ${sql.table(expression)} WHERE domain_key IS NOT NULL OR actor_key IS NOT NULL`
}

/**
 * A part of the statement that deletes rows: stores their ids. Administrators of the domain read the journal of a deleted entity by its id,
 * and administrators of the platform that of a worker without a domain.
 */
export function storeRemoved(type: ManagedType, expression = 'changed'): string {
  const where = type === 'worker' ? '' : 'WHERE domain_key IS NOT NULL'
  return `INSERT INTO removed_entities (key, type, domain_key, id)
    SELECT key + ${MANAGED[type].firstKey}, '${type}', domain_key, id FROM ${expression} ${where}`
}
