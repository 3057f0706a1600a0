/**
 * Reads on a standby, for readers that may take long. A read waits until the standby has replayed the position that the primary had
 * when the read began, so it shows everything that was acknowledged before. Where that takes too long, or the standby is
 * unavailable, the primary serves the read.
 *
 * A position is compared within one epoch (`changelog/epoch.ts`): a standby that replayed the beginning of the epoch follows the
 * primary that began it, and not one that was replaced.
 */
import type pg from 'pg'
import { ServiceError, kindOf } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'
import { sql } from '../sql.ts'
import { monotonicMs, sleep, withDeadline } from '../time.ts'
import type { Ask, Database, SnapshotSource } from './connect.ts'
import { translateDatabaseError } from './errors.ts'

export type ReplicaOptions = {
  primary: Database
  /** The connections to the standby; `close` closes them. */
  standby: Database
  logger: Logger
  /** The maximum wait of a read for the standby. */
  catchUpMs?: number
  /** The time for which the primary serves all reads after the standby failed. */
  avoidMs?: number
}

export type Replica = SnapshotSource & {
  /** The reason why the primary serves the reads. Undefined: the standby does. */
  readonly reason: string | undefined
  close(): Promise<void>
}

/** The write-ahead log of the primary up to here holds everything that was acknowledged. */
type ReplayTarget = { epoch: string; lsn: string }

const CATCH_UP_MS = 1000
const AVOID_MS = 2000
/** The pauses between two looks at the position of the standby. */
const MIN_PAUSE_MS = 2
const MAX_PAUSE_MS = 50

/** The standby cannot serve this read. */
class StandbyUnusable extends Error {}

export function createReplica(options: ReplicaOptions): Replica {
  const { primary, standby, logger, catchUpMs = CATCH_UP_MS, avoidMs = AVOID_MS } = options
  let avoidUntilMs = -Infinity
  let reason: string | undefined

  function avoid(error: unknown): void {
    avoidUntilMs = monotonicMs() + avoidMs
    const isNew = reason === undefined
    reason = error instanceof StandbyUnusable ? error.message : 'the replica of the database is unavailable'
    if (isNew) logger.warn({ err: error }, 'the replica of the database cannot be used; the primary serves its reads')
  }

  function used(): void {
    if (reason !== undefined) logger.info('the replica of the database serves reads again')
    reason = undefined
  }

  /** `read` is repeated on the primary where the standby fails. */
  async function route<T>(
    onStandby: (ready: (ask: Ask) => Promise<void>) => Promise<T>,
    onPrimary: () => Promise<T>,
  ): Promise<T> {
    if (monotonicMs() < avoidUntilMs) return await onPrimary()
    const target = await targetOf(primary)
    try {
      const value = await onStandby((ask) => replayed(ask, target, catchUpMs))
      used()
      return value
    } catch (error) {
      if (!isOfStandby(error)) throw error
      avoid(error)
      return await onPrimary()
    }
  }

  return {
    snapshot: (work, deadlineMs) =>
      route(
        (ready) => standby.snapshot(work, deadlineMs, ready),
        () => primary.snapshot(work, deadlineMs),
      ),
    dedicated: (name) =>
      route(
        async (ready) => {
          const client = await standby.dedicated(name)
          try {
            await withDeadline(ready(askOf(client)), catchUpMs * 2, 'waiting for the replica')
          } catch (error) {
            void client.end().catch(() => undefined)
            throw kindOf(error) === 'timeout'
              ? new StandbyUnusable('the replica of the database does not answer')
              : error
          }
          return client
        },
        () => primary.dedicated(name),
      ),
    get reason() {
      return reason
    },
    close: () => standby.close(),
  }
}

function askOf(client: pg.Client): Ask {
  return async (text, values) => (await client.query<Record<string, unknown>>(text, [...values])).rows
}

async function targetOf({ db }: Database): Promise<ReplayTarget> {
  try {
    const { rows } = await sql<ReplayTarget>`
      SELECT position_offset()::text AS epoch, pg_current_wal_flush_lsn()::text AS lsn`.execute(db)
    return rows[0] as ReplayTarget
  } catch (error) {
    throw translateDatabaseError(error)
  }
}

/** Rejects with `StandbyUnusable` when the server is no standby or does not reach the position in time. */
async function replayed(ask: Ask, { epoch, lsn }: ReplayTarget, catchUpMs: number): Promise<void> {
  const deadlineMs = monotonicMs() + catchUpMs
  for (let pauseMs = MIN_PAUSE_MS; ; pauseMs = Math.min(MAX_PAUSE_MS, pauseMs * 2)) {
    const [seen] = await ask(
      `SELECT pg_is_in_recovery() AS standby,
              position_offset()::text = $1 AND pg_last_wal_replay_lsn() >= $2::pg_lsn AS reached`,
      [epoch, lsn],
    )
    if (seen?.['standby'] !== true) throw new StandbyUnusable('SKEIN_DATABASE_REPLICA_URL leads to no standby')
    if (seen['reached'] === true) return
    if (monotonicMs() > deadlineMs) throw new StandbyUnusable('the replica of the database is too far behind')
    await sleep(pauseMs)
  }
}

/**
 * True if the standby caused the error. The read itself did not: a statement that takes too long on the standby takes too long on the
 * primary.
 */
function isOfStandby(error: unknown): boolean {
  if (error instanceof StandbyUnusable) return true
  const translated = translateDatabaseError(error)
  return translated instanceof ServiceError && translated.kind === 'unavailable'
}
