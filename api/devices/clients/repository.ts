/** SQL of clients. */
import { grantingAdmin } from '#api/identity/index.ts'
import type { ColumnsOf, Queryable, Transaction } from '#core/database/index.ts'
import { prepared, refusing } from '#core/database/index.ts'
import { takenField } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import { ACTIVITY } from './activity.ts'
import type { ActivityColumns } from './activity.ts'
import { RECORD_COLUMNS, connectableTable } from '../connectable/repository.ts'
import type { ConnectableRecord } from '../connectable/record.ts'
import type { Computed, ConnectableChange } from '../connectable/repository.ts'

/** Only lists and views have the activity: a record that was created or changed has none. */
export type ClientRecord = ConnectableRecord<'client'> & {
  identity: string
  secretSealed: Buffer
  privateMetadata: Record<string, unknown>
} & Partial<ActivityColumns>

const COLUMNS = {
  ...RECORD_COLUMNS,
  identity: 'identity',
  secretSealed: 'secret_sealed',
  privateMetadata: 'private_metadata',
} satisfies ColumnsOf<Omit<ClientRecord, Computed | keyof ActivityColumns>>

/** `secretPath`: where the body has the secret, which is another place at creation. */
const conflictsOf = (secretPath: string) => ({
  clients_id_key: () => takenField('/id', 'a client with this id exists in the domain'),
  clients_secret_key: () => takenField(secretPath, 'a client with this secret exists in the domain'),
})

type InsertedRow = { key: number; id: string; created_at: string }

export type NewClientRow = Pick<
  ClientRecord,
  | 'id'
  | 'name'
  | 'tags'
  | 'identity'
  | 'secretSealed'
  | 'metadata'
  | 'privateMetadata'
  | 'status'
  | 'parentGroupKey'
  | 'parentGroupId'
> & { secretMac: Buffer }

/**
 * Serializes bulk creations of one domain with an advisory lock. Two bulk creations with the same ids and secrets in
 * different orders would deadlock, and no order of the rows is right for both unique constraints.
 */
export async function awaitOtherBulks(tx: Transaction, domainKey: number): Promise<void> {
  await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`clients of ${domainKey}`}, 0))`.execute(tx)
}

/** Inserts in the order of the ids, so that two statements with common ids cannot deadlock. */
const INSERT = prepared<InsertedRow>(
  'insert_clients',
  `WITH made AS (
   INSERT INTO clients (domain_key, id, name, tags, identity, secret_mac, secret_sealed, metadata, private_metadata, status, parent_group_key, created_by)
   SELECT $1, (item ->> 'id')::uuid, item ->> 'name', ARRAY(SELECT jsonb_array_elements_text(item -> 'tags')), item ->> 'identity',
          decode(item ->> 'secretMac', 'base64'), decode(item ->> 'secretSealed', 'base64'), item -> 'metadata', item -> 'privateMetadata', item ->> 'status',
          (item ->> 'parentGroupKey')::bigint, $2
     FROM jsonb_array_elements($3::jsonb) AS list (item) ORDER BY item ->> 'id'
   RETURNING key, id, created_at),
   granted AS (${grantingAdmin('client', { made: 'made', user: '$4', domain: '$1' })})
   SELECT key, id, created_at FROM made`,
)

/**
 * Inserts any number of clients in one statement, all or none, in the order of their ids. Returns them in the order given.
 */
export async function insertClients(
  db: Transaction,
  domain: { domainKey: number; domainId: string },
  clients: readonly NewClientRow[],
  creator: { id: string; key: number },
): Promise<ClientRecord[]> {
  const { domainKey, domainId } = domain
  const items = clients.map((client) => ({
    ...client,
    secretMac: client.secretMac.toString('base64'),
    secretSealed: client.secretSealed.toString('base64'),
  }))
  const { rows } = await refusing(
    conflictsOf('/credentials/secret'),
    INSERT(db, [domainKey, creator.id, JSON.stringify(items), creator.key]),
  )
  // Given values are not read back: for ten thousand rows reading takes longer than writing.
  const inserted = new Map(rows.map((row) => [row.id, row]))
  return clients.map((client) => {
    const { key, created_at: createdAt } = inserted.get(client.id) as InsertedRow
    return {
      ...client,
      type: 'client',
      key,
      domainKey,
      domainId,
      createdBy: creator.id,
      createdAt,
      updatedBy: null,
      updatedAt: null,
    }
  })
}

/** Returns which of these ids and secrets clients of the domain already use. */
export async function findTaken(
  db: Queryable,
  domainKey: number,
  ids: readonly string[],
  secretMacs: readonly Buffer[],
): Promise<{ ids: ReadonlySet<string | undefined>; secretMacs: ReadonlySet<string | undefined> }> {
  const macs = secretMacs.map((mac) => mac.toString('hex'))
  const { rows } = await sql<{ id: string; mac: string }>`
    SELECT id, encode(secret_mac, 'hex') AS mac FROM clients WHERE domain_key = ${domainKey}
       AND (id = ANY (${ids}::uuid[]) OR secret_mac = ANY (ARRAY(SELECT decode(mac, 'hex') FROM unnest(${macs}::text[]) mac)))`.execute(
    db,
  )
  return { ids: new Set(rows.map(({ id }) => id)), secretMacs: new Set(rows.map(({ mac }) => mac)) }
}

export type ClientChange = ConnectableChange & {
  secretMac?: Buffer
  secretSealed?: Buffer
  privateMetadata?: Record<string, unknown>
}

export const clientTable = connectableTable<ClientRecord, ClientChange>({
  type: 'client',
  columns: COLUMNS,
  writeOnly: { secretMac: 'secret_mac' },
  joined: ACTIVITY,
  conflicts: conflictsOf('/secret'),
})
