/**
 * A position orders the rows of a changelog by the transaction that wrote them. A sequence alone loses rows: a lower number
 * may commit after a higher one was read.
 */
import { ServiceError } from '../errors/index.ts'

export type Position = { xid: bigint; seq: number }

/** Precedes the first row of any changelog. */
export const LOG_START: Position = { xid: 0n, seq: 0 }

export function comparePositions(left: Position, right: Position): number {
  if (left.xid !== right.xid) return left.xid < right.xid ? -1 : 1
  return left.seq - right.seq
}

/** `<xid>-<seq>`: the form of a position in the API (`Last-Event-ID`). */
export function formatPosition(position: Position): string {
  return `${position.xid}-${position.seq}`
}

/** The largest transaction id of PostgreSQL (xid8). */
const MAX_XID = 2n ** 64n - 1n

/** Reads `formatPosition`'s form; throws `malformed`. */
export function parsePosition(text: string): Position {
  const match = /^(\d{1,20})-(\d{1,16})$/.exec(text)
  const xid = BigInt(match?.[1] ?? -1)
  const seq = Number(match?.[2] ?? -1)
  if (xid < 0n || xid > MAX_XID || !Number.isSafeInteger(seq))
    throw new ServiceError('malformed', 'a position must have the form <number>-<number>')
  return { xid, seq }
}
