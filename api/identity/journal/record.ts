/** SQL that writes records of the journal, in the transaction of their change. */
import { prepared } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import type { UserPrincipal } from '../access/principal.ts'
import { redact } from './redact.ts'
import type { TrialRows } from './trial.ts'

/** The actor of a change: a user, or Skein itself. */
export type Actor = UserPrincipal | 'system'

export type JournalEntry = {
  /** `<entity>.<change>` from contract section 10. */
  operation: string
  /** Undefined for a change outside a domain. */
  domainKey?: number
  /** Keys of every changed entity. Caches invalidate entries that depend on them. */
  entityKeys: readonly number[]
  /** Flat attributes of the change. They never contain a secret, a key or a token. */
  attributes?: Readonly<Record<string, unknown>>
  /** Names of the entities in the attribute `ids`. A trial shows them; they are not recorded. */
  names?: readonly string[]
  /** Counts what is deleted after the transaction of the change. Only a trial calls it, after it has rolled the transaction back. */
  later?: () => Promise<TrialRows[]>
}

/** Names of the token types for existing consumers of events (contract section 10). */
const TOKEN_TYPES = { login: 'access token', api_key: 'api key', pat: 'pat' } as const satisfies Record<
  UserPrincipal['credential'],
  string
>

/** Maximum number of records in one statement. */
const MAX_STATEMENT_RECORDS = 1000

const INSERT = prepared(
  'insert_journal',
  `INSERT INTO journal (actor_kind, actor_key, actor_id, address, request_id, token_type, super_admin, operation, domain_key, entity_keys,
                        attributes)
   SELECT actor_kind, actor_key, actor_id, address, request_id, token_type, super_admin, operation, domain_key, entity_keys, attributes
     FROM ROWS FROM (jsonb_to_recordset($1::jsonb) AS (
       actor_kind text, actor_key bigint, actor_id uuid, address text, request_id text, token_type text, super_admin boolean,
       operation text, domain_key bigint, entity_keys bigint[], attributes jsonb)) WITH ORDINALITY
       AS item (actor_kind, actor_key, actor_id, address, request_id, token_type, super_admin, operation, domain_key, entity_keys,
                attributes, place)
    ORDER BY place`,
)

/** The columns of a record that say who made the change. */
export function actorColumns(actor: Actor) {
  const user = actor === 'system' ? undefined : actor
  return {
    actor_kind: user === undefined ? 'system' : 'user',
    actor_key: user?.key ?? null,
    actor_id: user?.id ?? null,
    address: user?.origin?.address ?? null,
    request_id: user?.origin?.requestId ?? null,
    token_type: user === undefined ? null : TOKEN_TYPES[user.credential],
    super_admin: user?.isPlatformAdmin ?? false,
  }
}

/** Inserts one row per record. Triggers index the entities of each record. */
export async function insertRecords(
  db: Queryable,
  records: readonly { actor: Actor; entry: JournalEntry }[],
): Promise<void> {
  const sent: Promise<unknown>[] = []
  for (let start = 0; start < records.length; start += MAX_STATEMENT_RECORDS) {
    const rows = records.slice(start, start + MAX_STATEMENT_RECORDS).map(({ actor, entry }) => ({
      ...actorColumns(actor),
      operation: entry.operation,
      domain_key: entry.domainKey,
      entity_keys: entry.entityKeys,
      attributes: redact(entry.attributes ?? {}),
    }))
    sent.push(INSERT(db, [JSON.stringify(rows)]))
  }
  await Promise.all(sent)
}
