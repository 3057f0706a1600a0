/** SQL that writes records of the journal, in the transaction of their change. */
import { prepared } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import type { UserPrincipal } from '../access/principal.ts'
import { redact } from './redact.ts'

export type JournalEntry = {
  /** `<entity>.<what>` from contract section 10. */
  operation: string
  /** Undefined: the change belongs to no domain. */
  domainKey?: number
  /** Keys of everything that changed; caches forget what depends on them. */
  entityKeys: readonly number[]
  /** Flat facts of the change. Never a secret, a key or a token. */
  attributes?: Readonly<Record<string, unknown>>
}

/** What existing consumers of events call the kinds of tokens (contract section 10). */
const TOKEN_TYPES = { login: 'access token', api_key: 'api key', pat: 'pat' } as const satisfies Record<
  UserPrincipal['credential'],
  string
>

/** Records of one statement. */
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

/** One row per record; triggers note the entities that each names (migration 0013). */
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
