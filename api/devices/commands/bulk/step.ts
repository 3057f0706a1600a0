/** One part of a command to many clients: what has ended is taken over, and some more clients get the command. */
import type { Journal, Recorder } from '#api/identity/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { hintCommandRuns } from '#queues/index.ts'
import { endGiving, giveSome, lockBulk, storeEnd, storeNext } from './repository.ts'
import type { BulkRecord, LockedBulk } from './repository.ts'
import { entryOf } from '../journal-entries.ts'
import { COMMAND_METRICS } from '../metrics.ts'

/** Commands that one part gives. */
const STEP_COMMANDS = 500
/** The pause between two parts, and the longest one while nothing happens. */
const PAUSE_MS = 500
const LONGEST_PAUSE_MS = 10_000
/** Each look counts all clients of the request, which takes the longer the more there are. */
const IDLE_MS_PER_CLIENT = 0.1
const SECONDS_PER_MINUTE = 60
/** Failures are compared with as many ended commands at least, so that the first one does not stop a thousand. */
const LEAST_ENDED = 10

/** The journal's record of a change of the request itself. */
export function bulkEntry(
  operation: 'begin' | 'stop' | 'cancel' | 'end',
  { domainKey, id, name }: Pick<BulkRecord, 'domainKey' | 'id' | 'name'>,
  more: object = {},
) {
  return { operation: `command.${operation}_many`, domainKey, entityKeys: [], attributes: { id, name, ...more } }
}

/** Why no more commands are given; undefined: more may be. */
export function stopReason({
  stopPercent,
  progress,
}: Pick<BulkRecord, 'stopPercent' | 'progress'>): string | undefined {
  if (stopPercent === null) return undefined
  const { total, succeeded, failed, rejected, timed_out: timedOut, expired, refused } = progress
  const unsuccessful = failed + rejected + timedOut + expired + refused
  const ended = Math.max(succeeded + unsuccessful, Math.min(LEAST_ENDED, total))
  if (unsuccessful * 100 <= stopPercent * ended) return undefined
  return `${unsuccessful} commands did not succeed: more than ${stopPercent} % of ${ended}`
}

/** How many commands may be given now. */
export function roomOf({
  atOnce,
  perMinute,
  progress,
  ageSeconds,
}: Pick<LockedBulk, 'atOnce' | 'perMinute' | 'progress' | 'ageSeconds'>): number {
  const room = Math.min(atOnce - progress.open, STEP_COMMANDS)
  if (perMinute === null) return room
  // The first second's part is given at once.
  const allowed = Math.ceil((perMinute * (ageSeconds + 1)) / SECONDS_PER_MINUTE)
  return Math.min(room, allowed - (progress.total - progress.waiting))
}

/** The time until the next part. */
export function pauseOf({ ended, progress }: Pick<LockedBulk, 'ended' | 'progress'>, given: number): number {
  if (given === STEP_COMMANDS) return 0
  if (given > 0 || ended > 0) return PAUSE_MS
  return Math.max(PAUSE_MS, Math.min(progress.total * IDLE_MS_PER_CLIENT, LONGEST_PAUSE_MS))
}

/** Gives the next part of a request. Returns whether it did anything. */
export async function stepBulk(journal: Pick<Journal, 'change'>, bus: Bus, key: number): Promise<boolean> {
  let isHanded = false
  const didAny = await journal.change('system', async (tx, record) => {
    const bulk = await lockBulk(tx, key, false)
    if (bulk === undefined) return false
    const { waiting, open } = bulk.progress
    if (waiting === 0 && open === 0) {
      await storeEnd(tx, key)
      record(bulkEntry('end', bulk, bulk.progress))
      return true
    }
    if (waiting > 0 && bulk.isExpired) {
      await endGiving(tx, key, { status: 'finished', reason: null, waiting: 'expired' })
      return true
    }
    const reason = waiting > 0 ? stopReason(bulk) : undefined
    if (reason !== undefined) {
      await endBulk(tx, bulk, record, { operation: 'stop', status: 'stopped', reason })
      return true
    }
    const room = waiting > 0 ? roomOf(bulk) : 0
    const given = room > 0 ? await giveSome(tx, bulk, room) : []
    isHanded = given.some((one) => one.isHanded)
    for (const one of given) record(entryOf('create', one))
    COMMAND_METRICS.created.add({}, given.length)
    await storeNext(tx, key, pauseOf(bulk, given.length))
    return given.length > 0
  })
  if (isHanded) hintCommandRuns(bus)
  return didAny
}

/** Ends the giving of commands, and cancels those that no device has. */
export async function endBulk(
  tx: Transaction,
  bulk: BulkRecord,
  record: Recorder,
  {
    operation,
    status,
    reason,
  }: { operation: 'stop' | 'cancel'; status: 'stopped' | 'cancelled'; reason: string | null },
): Promise<void> {
  const cancelled = await endGiving(tx, bulk.key, { status, reason, waiting: 'cancelled' })
  for (const one of cancelled) record(entryOf('cancel', one))
  record(bulkEntry(operation, bulk, reason === null ? {} : { reason }))
}
