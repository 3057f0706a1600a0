/** SQL that writes records of the journal, in the transaction of their change. */
import { sql } from 'kysely'
import type { Transaction } from '#core/database/index.ts'
import type { UserPrincipal } from '../access/principal.ts'
import type { JournalEntry } from './journal.ts'
import { redact } from './redact.ts'

/** What existing consumers of events call the kinds of tokens (contract section 10). */
const TOKEN_TYPES = { login: 'access token', api_key: 'api key', pat: 'pat' } as const satisfies Record<
  UserPrincipal['credential'],
  string
>

/** Records of one statement: each has eleven parameters, and PostgreSQL takes 65,535 of them. */
const MAX_STATEMENT_RECORDS = 1000

/** One row per record; triggers note the entities that each names (migration 0013). */
export async function insertRecords(
  tx: Transaction,
  actor: UserPrincipal | 'system',
  entries: readonly JournalEntry[],
): Promise<void> {
  const user = actor === 'system' ? undefined : actor
  for (let start = 0; start < entries.length; start += MAX_STATEMENT_RECORDS) {
    const rows = entries.slice(start, start + MAX_STATEMENT_RECORDS).map(
      (entry) => sql`(${entry.operation}, ${entry.domainKey ?? null}::bigint, ${user === undefined ? 'system' : 'user'},
        ${user?.key ?? null}::bigint, ${user?.id ?? null}::uuid, ${user?.origin?.address ?? null}, ${user?.origin?.requestId ?? null},
        ${user === undefined ? null : TOKEN_TYPES[user.credential]}, ${user?.isPlatformAdmin ?? false}::boolean,
        ${entry.entityKeys}::bigint[], ${JSON.stringify(redact(entry.attributes ?? {}))}::jsonb)`,
    )
    await sql`INSERT INTO journal (operation, domain_key, actor_kind, actor_key, actor_id, address, request_id,
        token_type, super_admin, entity_keys, attributes) VALUES ${sql.join(rows)}`.execute(tx)
  }
}
