/** Counts what a deletion would delete, without a lock and within a deadline. */
import { countedRows, deletedRows } from '#api/identity/index.ts'
import type { TrialRows } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import { all, scopeOf, timeConditions } from '../reader/conditions.ts'
import type { Filter } from '../reader/filter.ts'
import { partsOf } from '../reader/parts.ts'
import { countRecords } from '../reader/totals.ts'
import type { DeletionTarget } from './steps.ts'

/** The deadline of each of both counts. */
const COUNT_DEADLINE_MS = 2_000

/** Records are counted by their rollups; JSON and raw messages one by one, up to a limit. `filter` is one without a publisher. */
export async function countMessages(
  database: Pick<Database, 'snapshot'>,
  { channelKey, publisherId, ...range }: DeletionTarget,
  filter: Filter,
): Promise<TrialRows[]> {
  const ofPublisher = { ...filter, publisherIds: publisherId === undefined ? undefined : [publisherId] }
  const records = async (tx: Transaction) =>
    await countRecords(tx, partsOf(await scopeOf(tx, channelKey, ofPublisher), filter))
  const payloads = async (tx: Transaction) => {
    const conditions = [sql<boolean>`p.channel_key = ${channelKey}`, ...timeConditions(sql`p.time`, range)]
    if (publisherId !== undefined) conditions.push(sql`p.publisher_id = ${publisherId}`)
    const { rows } = await sql<{ found: number }>`
      SELECT ${countedRows(sql`SELECT FROM payloads p WHERE ${all(conditions)}`)} AS found`.execute(tx)
    return rows[0]?.found ?? 0
  }
  const counted: TrialRows[] = []
  for (const [table, count] of Object.entries({ records, payloads })) {
    const deleted = await countInTime(database, count)
    if (deleted === undefined) counted.push({ table, created: 0, updated: 0, deleted: 0, exact: false })
    else if (table === 'records' && deleted > 0) counted.push({ table, created: 0, updated: 0, deleted })
    else counted.push(...deletedRows({ [table]: deleted }))
  }
  return counted
}

/** Undefined when the count takes too long. */
async function countInTime(
  database: Pick<Database, 'snapshot'>,
  count: (tx: Transaction) => Promise<number>,
): Promise<number | undefined> {
  try {
    return await database.snapshot(count, COUNT_DEADLINE_MS)
  } catch (error) {
    if (kindOf(error) === 'timeout') return undefined
    throw error
  }
}
