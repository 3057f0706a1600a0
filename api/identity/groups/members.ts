/**
 * The clients and channels of a group that is deleted. They lose their parent, and the journal records each of them
 * (decision 46). The foreign keys update their rows.
 */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Recorder } from '../journal/index.ts'
import type { GroupRecord } from './repository.ts'

const MEMBER_TABLES = { client: 'clients', channel: 'channels' } as const
type MemberType = keyof typeof MEMBER_TABLES

/** Maximum number of members in one journal entry. */
const MAX_RECORDED = 10_000

/** Records that every member of a locked group loses its parent. Must be called before the group is deleted. */
export async function recordOrphans(tx: Transaction, group: GroupRecord, record: Recorder): Promise<void> {
  for (const type of ['client', 'channel'] as const) {
    const members = await findMembers(tx, type, group.key)
    for (let start = 0; start < members.length; start += MAX_RECORDED) {
      const part = members.slice(start, start + MAX_RECORDED)
      record({
        operation: `${type}.remove_parent`,
        domainKey: group.domainKey,
        entityKeys: part.map((member) => member.key),
        attributes: { ids: part.map((member) => member.id), parent_group_id: group.id },
      })
    }
  }
}

async function findMembers(
  tx: Transaction,
  type: MemberType,
  groupKey: number,
): Promise<{ key: number; id: string }[]> {
  const table = sql.table(MEMBER_TABLES[type])
  const { rows } = await sql<{ key: number; id: string }>`
    SELECT key, id FROM ${table} WHERE parent_group_key = ${groupKey} ORDER BY key FOR NO KEY UPDATE`.execute(tx)
  return rows
}
