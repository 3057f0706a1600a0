/**
 * Consumers that are behind: their rows have the columns `behind_xid`, `behind_seq`, `behind_message` and `behind_since`, which say where in the
 * changelog of messages they go on, or are all NULL.
 */
import { sql } from '../sql.ts'
import type { Sql } from '../sql.ts'
import type { Position } from './position.ts'

/** The first message that the consumer has not taken: the position of its batch, its number in the batch, and when it arrived. */
export type BehindPlace = Position & { message: number; arrivedAtSeconds: number }

/** The column `behind` of a SELECT, as JSON: what `behindOf` reads. */
export function behindColumn(row: string): Sql {
  const column = (name: string) => sql.ref(`${row}.behind_${name}`)
  return sql`CASE WHEN ${column('since')} IS NOT NULL THEN json_build_object('xid', ${column('xid')}::text, 'seq', ${column('seq')},
    'message', ${column('message')}, 'arrivedAtSeconds', extract(epoch FROM ${column('since')})::float8) END AS behind`
}

export type BehindColumn = (Omit<BehindPlace, 'xid'> & { xid: string }) | null

export function behindOf(behind: BehindColumn): BehindPlace | undefined {
  return behind === null ? undefined : { ...behind, xid: BigInt(behind.xid) }
}

/** A part of an UPDATE. Undefined: the consumer is not behind. */
export function setBehind(place: BehindPlace | undefined): Sql {
  return sql`behind_xid = ${place?.xid.toString() ?? null}::xid8, behind_seq = ${place?.seq ?? null}::bigint,
    behind_message = ${place?.message ?? null}::integer, behind_since = to_timestamp(${place?.arrivedAtSeconds ?? null}::float8)`
}
