/**
 * Ends commands whose time has passed; beside that, gives the next parts of commands to many clients and removes old ones. Each process has these
 * two timers, and one process at a time ends commands, so that those of a process that has died end too.
 */
import type { Journal } from '#api/identity/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startRounds } from '#core/rounds.ts'
import type { Rounds } from '#core/rounds.ts'
import { monotonicMs } from '#core/time.ts'
import { listDueBulks, removeOldBulks } from './bulk/repository.ts'
import { stepBulk } from './bulk/step.ts'
import { entryOf } from './journal-entries.ts'
import { COMMAND_METRICS } from './metrics.ts'
import { endDue, removeOld, secondsUntilDue, tryLockSweep } from './repository.ts'

/** Commands that one transaction ends. */
const STEP_COMMANDS = 500
/** Commands to many clients that one round goes on with. */
const STEP_BULKS = 50
/** The pause while some of them run. */
const BULK_PAUSE_MS = 500
/** The pause while none runs. */
const NO_BULK_PAUSE_MS = 1_000
/** The pause without a command that is due earlier: one that is given meanwhile ends late by this at most. */
const LONGEST_PAUSE_MS = 1_000
const SHORTEST_PAUSE_MS = 50
const RETRY_MS = 5_000
/** The interval between two removals of old commands, and the rows of one statement. */
const REMOVAL_INTERVAL_MS = 600_000
const REMOVED_ROWS = 1_000
/** Each takes the rows of its clients along, 100,000 at most, if a node of an earlier version has kept them. */
const REMOVED_BULKS = 10
/** Statements of one removal; the next one goes on. */
const MAX_REMOVALS = 100

/** Removes what ended long ago, in steps. */
export async function removeEnded(db: Queryable): Promise<void> {
  const removals = [
    { remove: removeOld, limit: REMOVED_ROWS },
    { remove: removeOldBulks, limit: REMOVED_BULKS },
  ]
  for (const { remove, limit } of removals)
    for (let count = 0; count < MAX_REMOVALS; count++) if ((await remove(db, limit)) < limit) break
}

export function startCommandSweep({
  database,
  journal,
  bus,
  logger,
}: {
  database: Database
  journal: Pick<Journal, 'change'>
  bus: Bus
  logger: Logger
}): Pick<Rounds, 'stop'> {
  let removedMs = -Infinity

  async function removeSometimes(): Promise<void> {
    if (monotonicMs() - removedMs < REMOVAL_INTERVAL_MS) return
    removedMs = monotonicMs()
    await removeEnded(database.db)
  }

  /** Each request in its turn. Processes share them: a request that another one works on is passed over. Returns how many were due. */
  async function stepBulks(): Promise<number> {
    const due = await listDueBulks(database.db, STEP_BULKS)
    for (const key of due) {
      try {
        await stepBulk(journal, bus, key)
      } catch (error) {
        // It is due again. Neither the others nor the ends of commands wait for it.
        logger.warn({ err: error }, 'failed to give the next part of a command to many clients; retrying')
      }
    }
    return due.length
  }

  // The ends of commands do not wait for the others.
  const bulks = startRounds(async () => {
    try {
      await removeSometimes()
      const due = await stepBulks()
      return { pauseMs: due > 0 ? BULK_PAUSE_MS : NO_BULK_PAUSE_MS, isWakeable: false }
    } catch (error) {
      logger.warn({ err: error }, 'failed to go on with commands to many clients; retrying')
      return { pauseMs: RETRY_MS, isWakeable: false }
    }
  })
  const ends = startRounds(async () => {
    try {
      const seconds = await secondsUntilDue(database.db)
      if (seconds !== undefined && seconds <= 0) {
        const ended = await sweepOnce(journal)
        if (ended === STEP_COMMANDS) return { pauseMs: 0, isWakeable: true }
        // Another process works, or these are being answered.
        if (ended === 0) return { pauseMs: LONGEST_PAUSE_MS, isWakeable: true }
        return { pauseMs: SHORTEST_PAUSE_MS, isWakeable: true }
      }
      const dueMs = seconds === undefined ? LONGEST_PAUSE_MS : seconds * 1000
      return { pauseMs: Math.max(SHORTEST_PAUSE_MS, Math.min(dueMs, LONGEST_PAUSE_MS)), isWakeable: true }
    } catch (error) {
      logger.warn({ err: error }, 'failed to end commands whose time has passed; retrying')
      return { pauseMs: RETRY_MS, isWakeable: false }
    }
  })
  return {
    async stop() {
      await Promise.all([bulks.stop(), ends.stop()])
    },
  }
}

/** Ends some of the commands whose time has passed. Returns their number. */
export async function sweepOnce(journal: Pick<Journal, 'change'>): Promise<number> {
  return await journal.change('system', async (tx, record) => {
    if (!(await tryLockSweep(tx))) return 0
    const ended = await endDue(tx, STEP_COMMANDS)
    for (const one of ended) {
      record(entryOf('expire', one))
      COMMAND_METRICS.ended.add({ status: one.status })
    }
    return ended.length
  })
}
