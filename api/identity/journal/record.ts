/** SQL that writes records of the journal, in the transaction of their change. */
import { prepared } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import type { UserPrincipal } from '../access/principal.ts'
import { redact } from './redact.ts'
import type { TrialRows } from './trial.ts'

export type JournalEntry = {
  /** `<entity>.<change>` from contract section 10. */
  operation: string
  /** Undefined for a change outside a domain. */
  domainKey?: number
  /** Keys of every changed entity. Caches invalidate entries that depend on them. */
  entityKeys: readonly number[]
  /** Flat attributes of the change. Never a secret, a key or a token. */
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
   SELECT $1, $2, $3, $4, $5, $6, $7, item ->> 'operation', (item ->> 'domainKey')::bigint,
          ARRAY(SELECT key::bigint FROM jsonb_array_elements_text(item -> 'entityKeys') WITH ORDINALITY AS keys (key, place) ORDER BY place),
          item -> 'attributes'
     FROM jsonb_array_elements($8::jsonb) WITH ORDINALITY AS list (item, place) ORDER BY place`,
)

/** Inserts one row per record. Triggers index the entities of each record (migration 0013). */
export async function insertRecords(
  tx: Transaction,
  actor: UserPrincipal | 'system',
  entries: readonly JournalEntry[],
): Promise<void> {
  const user = actor === 'system' ? undefined : actor
  const who = [
    user === undefined ? 'system' : 'user',
    user?.key,
    user?.id,
    user?.origin?.address,
    user?.origin?.requestId,
    user === undefined ? undefined : TOKEN_TYPES[user.credential],
    user?.isPlatformAdmin ?? false,
  ]
  const sent: Promise<unknown>[] = []
  for (let start = 0; start < entries.length; start += MAX_STATEMENT_RECORDS) {
    const records = entries.slice(start, start + MAX_STATEMENT_RECORDS).map((entry) => ({
      operation: entry.operation,
      domainKey: entry.domainKey,
      entityKeys: entry.entityKeys,
      attributes: redact(entry.attributes ?? {}),
    }))
    sent.push(INSERT(tx, [...who, JSON.stringify(records)]))
  }
  await Promise.all(sent)
}
