/**
 * Copies closed ranges of records to the archive, on one node at a time. Domains take turns, range by range. What is left of an interrupted
 * export is swept a day later, and the export is repeated.
 */
import type pg from 'pg'
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import type { PeriodicRounds } from '#core/rounds.ts'
import type { Statement } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import { lockProjections } from '../projections/lock.ts'
import { exportRange } from './export-range.ts'
import type { ExportedRange } from './export-range.ts'
import { removeFile } from './file-store.ts'
import { ARCHIVE_METRICS } from './metrics.ts'
import {
  deleteFiles,
  deleteOldPlans,
  deleteRanges,
  ensureTable,
  findChanges,
  findChannelsIn,
  findDomainsIn,
  findDue,
  findExpired,
  findGone,
  findObstacles,
  findSwept,
  findUnplanned,
  insertRanges,
  markExported,
  markRemovedChannels,
  removeTable,
} from './repository.ts'
import type { DueRange } from './repository.ts'
import { commitSnapshot } from './table-commit.ts'
import type { Step } from './table-commit.ts'

const INTERVAL_MS = 10 * 60 * 1000
/** Who deletes records without end keeps its ranges due: the other steps of a round have their turn too. */
const MAX_EXPORTING_MS = 10 * 60 * 1000
const FIRST_PAUSE_MS = 30_000
const CONNECTION_NAME = 'skein archive'
const EXPORT_CONNECTION_NAME = 'skein archive export'
const ARCHIVE_LOCK = 0x5ce1_002a
/** No transaction that stores messages takes longer, so a range that closed so long ago gets no more of them. */
const MIN_AFTER_MS = 3_600_000
/** Readers that began with an earlier snapshot read its files for this long. */
const GRACE_SECONDS = 86_400
/** Removals of channels of a whole day are looked at in each round: their transaction may have taken long. */
const REMOVALS_SECONDS = 2 * 86_400
const EXPIRED_RANGES = 1000
const SWEPT_FILES = 1000
/** Domains of one turn. */
const DUE_DOMAINS = 100

export type ArchiverOptions = {
  database: Database
  logger: Logger
  /** `file:///path`. */
  url: string
  afterMs: number
  /** Called after each step of a round. */
  atStep?: (step: Step) => Promise<void>
  graceSeconds?: number
  intervalMs?: number
}

export type Round = { exported: number; failed: number; expired: number; deletedFiles: number }

/** One round: expiry, plans, exports until none is due, and the sweep. Undefined while another process holds the lock. */
export async function archiveOnce(
  { database, logger, url, afterMs, atStep = async () => undefined, graceSeconds = GRACE_SECONDS }: ArchiverOptions,
  signal: AbortSignal,
): Promise<Round | undefined> {
  // The lock belongs to its connection, so PostgreSQL releases it when the process dies.
  const client = await database.dedicated(CONNECTION_NAME)
  try {
    const { rows } = await client.query<{ locked: boolean }>('SELECT pg_try_advisory_lock($1) AS locked', [
      ARCHIVE_LOCK,
    ])
    if (rows[0]?.locked !== true || (await mustWait(database.db, url))) return undefined
    const deps = { database, now: () => Date.now(), atStep, signal, client }
    for (const domainKey of await findGone(database.db)) await database.transaction((tx) => removeTable(tx, domainKey))
    const expired = await expire(deps, url)
    await markRemovedChannels(over(client), REMOVALS_SECONDS)
    await plan(deps, Math.max(afterMs, MIN_AFTER_MS) / 1000)
    const done = await exportDue(deps, url, logger)
    const deletedFiles = await sweep(deps, graceSeconds)
    return { ...done, expired, deletedFiles }
  } finally {
    await client.end()
  }
}

/**
 * An older node deletes records without counting the change of their range. Throws `invalid_state` if the files are elsewhere: they may be those
 * of the installation that this one is a copy of.
 */
async function mustWait(db: Queryable, url: string): Promise<boolean> {
  const { hasOlder, elsewhere } = await findObstacles(db, url)
  if (elsewhere !== null)
    throw new ServiceError(
      'invalid_state',
      `the archive has a table at ${elsewhere}, which is not below SKEIN_ARCHIVE_URL (${url}): nothing is copied or removed`,
    )
  return hasOlder
}

type RoundDeps = {
  database: Database
  client: pg.Client
  now: () => number
  atStep: (step: Step) => Promise<void>
  signal: AbortSignal
}

/** Long reads run on the connection of the archiver. */
function over(client: pg.Client): Queryable {
  return {
    async query<Row>({ text, values }: Statement) {
      const { rows } = await client.query(text, [...values])
      return { rows: rows as Row[] }
    },
  }
}

async function expire(deps: RoundDeps, url: string): Promise<number> {
  const { database, signal } = deps
  let expired = 0
  for (;;) {
    const domains = await findExpired(database.db, EXPIRED_RANGES)
    if (domains.length === 0) return expired
    for (const { domainKey, ranges } of domains) {
      signal.throwIfAborted()
      const table = await ensureTable(database.db, domainKey, url)
      const isCommitted = await commitSnapshot(deps, table, { ranges, added: [] }, (tx) => deleteRanges(tx, ranges))
      if (!isCommitted) await deleteRanges(database.db, ranges)
      expired += ranges.length
    }
  }
}

async function plan({ database, client, signal, atStep }: RoundDeps, afterSeconds: number): Promise<void> {
  const reader = over(client)
  await deleteOldPlans(database.db)
  for (const range of await findUnplanned(reader, afterSeconds)) {
    signal.throwIfAborted()
    const domainKeys = await findDomainsIn(reader, range.leaf)
    await database.transaction(async (tx) => {
      await lockProjections(tx)
      await insertRanges(tx, range, domainKeys)
    })
    await atStep('planned')
  }
}

async function exportDue(deps: RoundDeps, url: string, logger: Logger): Promise<{ exported: number; failed: number }> {
  let exported = 0
  const deadlineMs = monotonicMs() + MAX_EXPORTING_MS
  // A domain whose export fails is left out until the next round, so that the others go on.
  const failed = new Set<number>()
  for (;;) {
    const due = (await findDue(deps.database.db, DUE_DOMAINS + failed.size)).filter(
      ({ domainKey }) => !failed.has(domainKey),
    )
    if (due.length === 0) return { exported, failed: failed.size }
    for (const range of due) {
      deps.signal.throwIfAborted()
      if (monotonicMs() > deadlineMs) return { exported, failed: failed.size }
      try {
        await exportOne(deps, url, range)
        exported += 1
      } catch (error) {
        deps.signal.throwIfAborted()
        failed.add(range.domainKey)
        ARCHIVE_METRICS.failures.add({})
        logger.warn(
          { err: error, domain_key: range.domainKey, range: range.from },
          'failed to copy a range of records to the archive; retrying',
        )
        // A broken connection has lost the lock as well.
        await deps.client.query('SELECT')
      }
    }
  }
}

async function exportOne(deps: RoundDeps, url: string, range: DueRange): Promise<void> {
  const { database, client } = deps
  const startedMs = monotonicMs()
  const table = await ensureTable(database.db, range.domainKey, url)
  // Read before the records: a later change is counted above it, and the range is exported again.
  const changes = await findChanges(database.db, range)
  if (changes === undefined) return
  const channels = await findChannelsIn(over(client), range.domainKey, range.leaf)
  // A connection of its own: when the export fails in the middle of a copy, it is closed.
  const reader = await database.dedicated(EXPORT_CONNECTION_NAME)
  let copied: ExportedRange
  try {
    copied = await exportRange({ ...deps, client: reader }, table, range, channels)
  } finally {
    await reader.end()
  }
  const { files, records, channelKeys } = copied
  const mark = (tx: Queryable) => markExported(tx, { ...range, changes }, { records, channelKeys })
  if (!(await commitSnapshot(deps, table, { ranges: [range], added: files }, mark))) await mark(database.db)
  ARCHIVE_METRICS.exports.add({})
  ARCHIVE_METRICS.exportedRecords.add({}, records)
  ARCHIVE_METRICS.exportSeconds.add({}, (monotonicMs() - startedMs) / 1000)
}

async function sweep({ database, signal, atStep }: RoundDeps, graceSeconds: number): Promise<number> {
  let deleted = 0
  for (;;) {
    const files = await findSwept(database.db, graceSeconds, SWEPT_FILES)
    if (files.length === 0) return deleted
    for (const { path } of files) {
      signal.throwIfAborted()
      await removeFile(path)
    }
    await atStep('files deleted')
    await deleteFiles(
      database.db,
      files.map(({ key }) => key),
    )
    deleted += files.length
  }
}

/** Rounds every ten minutes until it is stopped. */
export function startArchiver(options: ArchiverOptions): PeriodicRounds {
  const { logger } = options
  return startPeriodicRounds({
    firstPauseMs: FIRST_PAUSE_MS,
    pauseMs: options.intervalMs ?? INTERVAL_MS,
    round: (signal) => archiveOnce(options, signal),
    onFailure: (error) => logger.warn({ err: error }, 'failed to maintain the archive; retrying'),
  })
}
