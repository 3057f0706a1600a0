/** SQL of clients. */
import { grantingAdmin } from '#api/identity/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { prepared, refusing } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { commonAssignments, connectableTable, findingByKeys, recordFromRow } from '../connectable/repository.ts'
import type { ConnectableRecord } from '../connectable/record.ts'
import type { ConnectableChange, ConnectableRow } from '../connectable/repository.ts'

export type ClientRecord = ConnectableRecord<'client'> & { identity: string; secretSealed: Buffer }

type Row = ConnectableRow & { identity: string; secret_sealed: Buffer }

function fromRow(row: Row): ClientRecord {
  return { ...recordFromRow('client', row), identity: row.identity, secretSealed: row.secret_sealed }
}

const CONFLICTS = {
  clients_id_key: () => new ServiceError('conflict', 'a client with this id exists in the domain'),
  clients_secret_key: () => new ServiceError('conflict', 'a client with this secret exists in the domain'),
}

type InsertedRow = { key: number; id: string; created_at: string }

export type NewClientRow = {
  id: string
  name: string
  tags: string[]
  identity: string
  secretMac: Buffer
  secretSealed: Buffer
  metadata: Record<string, unknown>
  status: 'enabled' | 'disabled'
  parentGroupKey: number | null
  parentGroupId: string | null
}

/**
 * Bulks of one domain follow each other from here on: two that want the same ids and secrets crosswise would wait for each
 * other, and no order of the rows is right for both constraints.
 */
export async function awaitOtherBulks(tx: Transaction, domainKey: number): Promise<void> {
  await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`clients of ${domainKey}`}, 0))`.execute(tx)
}

/** In the order of their ids, so that two statements with ids in common wait for each other only one way round. */
const INSERT = prepared<InsertedRow>(
  'insert_clients',
  `WITH made AS (
   INSERT INTO clients (domain_key, id, name, tags, identity, secret_mac, secret_sealed, metadata, status, parent_group_key, created_by)
   SELECT $1, (item ->> 'id')::uuid, item ->> 'name', ARRAY(SELECT jsonb_array_elements_text(item -> 'tags')), item ->> 'identity',
          decode(item ->> 'secretMac', 'base64'), decode(item ->> 'secretSealed', 'base64'), item -> 'metadata', item ->> 'status',
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
  const { rows } = await refusing(CONFLICTS, INSERT(db, [domainKey, creator.id, JSON.stringify(items), creator.key]))
  // What was given is not read back: of ten thousand rows that takes longer than to write them.
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

/** Which of these ids and secrets clients of the domain have. */
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

export type ClientChange = ConnectableChange & { secret?: { mac: Buffer; sealed: Buffer } }

function assignments(change: ClientChange): Sql<unknown>[] {
  const sets = commonAssignments(change)
  if (change.secret !== undefined)
    sets.push(sql`secret_mac = ${change.secret.mac}, secret_sealed = ${change.secret.sealed}`)
  return sets
}

export const clientTable = connectableTable<ClientRecord, Row, ClientChange>({
  type: 'client',
  fromRow,
  assignments,
  conflicts: CONFLICTS,
})

const FIND_BY_KEYS = findingByKeys<Row>('client', ['identity', 'secret_sealed'])

/** Those of the keys that are still there, in any order. */
export async function findClients(db: Queryable, keys: readonly number[]): Promise<ClientRecord[]> {
  return (await FIND_BY_KEYS(db, [keys])).rows.map(fromRow)
}
