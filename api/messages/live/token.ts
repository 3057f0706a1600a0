/**
 * The position of a follower of messages: everything that a snapshot of the database saw, and beyond it everything up to a position.
 * It is the id of an event and is sent back as `Last-Event-ID`.
 */
import { ServiceError } from '#core/errors/index.ts'
import { LOG_START, formatPosition, parsePosition } from '#core/changelog/index.ts'
import type { LogSnapshot, Position } from '#core/changelog/index.ts'

export type LiveToken = { snapshot: LogSnapshot; position: Position }

/** The maximum number of transactions that were running when a token was made, far above the connections of a server. */
const MAX_RUNNING = 500
const SNAPSHOT = /^(\d{1,20})(?::(\d{1,20}(?:,\d{1,20})*))?$/

/** `<xmax>[:<xid>,…][~<position>]`. */
export function formatToken({ snapshot, position }: LiveToken): string {
  const running = snapshot.running.length === 0 ? '' : `:${snapshot.running.join(',')}`
  const read = position.xid === LOG_START.xid ? '' : `~${formatPosition(position)}`
  return `${snapshot.xmax}${running}${read}`
}

/** Throws `malformed`. */
export function parseToken(text: string): LiveToken {
  const [seen = '', read, ...more] = text.split('~')
  const match = SNAPSHOT.exec(seen)
  const running = match?.[2]?.split(',') ?? []
  const isValid = match !== null && more.length === 0 && running.length <= MAX_RUNNING
  if (!isValid || [match[1] as string, ...running].some((xid) => BigInt(xid) >= 2n ** 64n)) {
    throw new ServiceError('malformed', 'Last-Event-ID must be the id of an event of this stream')
  }
  return {
    snapshot: { xmax: match[1] as string, running },
    position: read === undefined ? LOG_START : parsePosition(read),
  }
}
