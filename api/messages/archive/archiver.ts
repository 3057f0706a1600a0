/**
 * Copies closed ranges of records to the archive, on one node at a time. Domains take turns, range by range. What is left of an interrupted
 * export is swept a day later, and the export is repeated. A step that fails for one domain or file goes on with the others, and the round says
 * so at its end.
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
import { auditArchive } from './audit.ts'
import type { Audit } from './audit.ts'
import { exportRange } from './export-range.ts'
import type { ExportedRange } from './export-range.ts'
import { ARCHIVE_METRICS } from './metrics.ts'
import { CONFIRM_MS, RENEW_MS, TAKEOVER_MS, claimFolder, keepFolder } from './ownership.ts'
import type { KeptFolder, OwnerMemory } from './ownership.ts'
import { isStoreExhausted, openStore, storeFailure } from './open-store.ts'
import { PIECE_LIMITS } from './pieces.ts'
import type { PieceLimits } from './pieces.ts'
import {
  ARCHIVE_LOCK,
  beginRound,
  deleteFiles,
  deleteOldPlans,
  deleteRanges,
  discardFiles,
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
  storeProgress,
  storeRound,
} from './repository.ts'
import type { DueRange, RangeKey } from './repository.ts'
import type { S3Target } from './s3-target.ts'
import type { ArchiveStore } from './store.ts'
import { commitSnapshot } from './table-commit.ts'
import type { Step } from './table-commit.ts'

const INTERVAL_MS = 10 * 60 * 1000
/** Who deletes records without end keeps its ranges due: the other steps of a round have their turn too. */
const MAX_EXPORTING_MS = 10 * 60 * 1000
const FIRST_PAUSE_MS = 30_000
const CONNECTION_NAME = 'skein archive'
const EXPORT_CONNECTION_NAME = 'skein archive export'
/** A store that does not answer for longer must not hold the snapshot, and with it the vacuum of all tables. */
const EXPORT_SILENCE_MS = 600_000
/** No transaction that stores messages takes longer, so a range that closed so long ago gets no more of them. */
const MIN_AFTER_MS = 3_600_000
/** Readers that began with an earlier snapshot read its files for this long. */
const GRACE_SECONDS = 86_400
/** Late removals of channels are looked at in each round: their transaction may have taken long. The audit finds all others. */
const REMOVALS_SECONDS = 2 * 86_400
const AUDIT_MS = 86_400_000
/** An audit looks at every file: one that failed is not repeated in each round. */
const AUDIT_RETRY_MS = 3_600_000
const EXPIRED_RANGES = 1000
const SWEPT_FILES = 1000
const REMOVED_AT_ONCE = 250
/** Domains of one turn. */
const DUE_DOMAINS = 100
/** Failed ranges after which a domain is left out of a round: one of them may fail alone. */
const MAX_FAILED_RANGES = 3

export type ArchiverOptions = {
  database: Database
  logger: Logger
  /** `file:///path` or `s3://bucket/prefix`. */
  url: string
  /** Where the bucket is. */
  s3?: S3Target | undefined
  afterMs: number
  /** Called after each step of a round. */
  atStep?: (step: Step) => Promise<void>
  graceSeconds?: number
  intervalMs?: number
  firstPauseMs?: number
  takeoverMs?: number
  confirmMs?: number
  renewMs?: number
  exportSilenceMs?: number
  limits?: PieceLimits
  /** What one process remembers between its rounds. */
  memory?: ArchiverMemory
}

export type ArchiverMemory = OwnerMemory & {
  /** When the next audit is due, and what failed in the last one. */
  audit?: { dueMs: number; error?: unknown }
  /** Whether the log has said what the operator should change. */
  isWarned?: boolean
  /** Domains whose exports found the store full. */
  filling?: Set<number>
}

/** `audit` is absent when none was due. `failures`: what could not be done, in the words of the first of each step. */
export type Round = {
  exported: number
  failed: number
  expired: number
  deletedFiles: number
  audit?: Audit
  failures: string[]
}

/**
 * One round: expiry, plans, exports until none is due, the sweep, and once a day the audit. Undefined while another process holds the lock, or
 * while it is not known whose folder it is. Rejects when nothing could be done.
 */
export async function archiveOnce(options: ArchiverOptions, signal: AbortSignal): Promise<Round | undefined> {
  const { database } = options
  // The lock belongs to its connection, so PostgreSQL releases it when the process dies.
  const client = await database.dedicated(CONNECTION_NAME)
  try {
    const { rows } = await client.query<{ locked: boolean }>('SELECT pg_try_advisory_lock($1) AS locked', [
      ARCHIVE_LOCK,
    ])
    if (rows[0]?.locked !== true) return undefined
    await beginRound(database.db)
    let round: Round | undefined
    try {
      round = await underLock(options, client, signal)
    } catch (error) {
      signal.throwIfAborted()
      await storeRound(database.db, described(error), detailed(error))
      throw error
    }
    // To wait is no failure.
    if (round === undefined) await storeProgress(database.db)
    else await storeRound(database.db, round.failures[0])
    return round
  } finally {
    await client.end()
  }
}

/** Failures of a database, and those that are not foreseen, are not described to users of a domain. */
function described(error: unknown): string {
  const store = storeFailure(error)
  if (store !== undefined) return `the store failed: ${store}`
  return error instanceof ServiceError ? error.message : 'a step failed; the log of the platform has its error'
}

/** For operators: users of one domain see neither the folder of the platform nor the ids of other domains. */
function detailed(error: unknown): string | undefined {
  if (!(error instanceof ServiceError) || error.context === undefined) return undefined
  const facts = Object.entries(error.context).map(([name, value]) => `${name} ${String(value)}`)
  return `${error.message} (${facts.join(', ')})`
}

async function underLock(options: ArchiverOptions, client: pg.Client, signal: AbortSignal): Promise<Round | undefined> {
  const { database, url, logger, memory = {} } = options
  const { takeoverMs = TAKEOVER_MS, confirmMs = CONFIRM_MS, renewMs = RENEW_MS } = options
  const { hasOlder, elsewhere } = await findObstacles(database.db, url)
  // They may be the files of the installation that this one is a copy of.
  if (elsewhere !== null)
    throw new ServiceError(
      'invalid_state',
      'the archive has a table that is not below SKEIN_ARCHIVE_URL: nothing is copied or removed',
      { context: { table: elsewhere, folder: url } },
    )
  const store = await openStore(url, options.s3, signal)
  const claim = await claimFolder(database.db, { store, url }, { memory, takeoverMs, confirmMs })
  if (claim === 'waits') {
    logger.info('the archive waits until its folder is known to belong to this installation, for 20 minutes at most')
    return undefined
  }
  if (claim === 'taken over') delete memory.audit
  // An older node deletes records without counting the change of their range.
  if (hasOlder) return undefined
  const folder = keepFolder(database.db, { store, url }, renewMs)
  try {
    const either = AbortSignal.any([signal, folder.signal])
    const inRound = await openStore(url, options.s3, either)
    return await inFolder(options, client, { check: () => folder.check(), store: inRound }, either)
  } finally {
    await folder.stop()
  }
}

async function inFolder(
  options: ArchiverOptions,
  client: pg.Client,
  { check, store }: Pick<KeptFolder, 'check'> & { store: ArchiveStore },
  signal: AbortSignal,
): Promise<Round> {
  const { database, url, logger, afterMs, memory = {} } = options
  const { graceSeconds = GRACE_SECONDS, limits = PIECE_LIMITS, exportSilenceMs = EXPORT_SILENCE_MS } = options
  const failures = new Failures(logger)
  const atStep = async (step: Step) => {
    if (step === 'data file written' && failures.sentences.length === 0) await storeProgress(database.db)
    await options.atStep?.(step)
  }
  const shared = { database, store, logger, memory, atStep, signal, check, client, limits, exportSilenceMs, failures }
  const deps = { ...shared, now: () => Date.now() }
  for (const domainKey of await findGone(database.db)) await database.transaction((tx) => removeTable(tx, domainKey))
  // What is deleted first makes room for what is copied.
  const kept = new Set<number>()
  const before = await sweep(deps, graceSeconds, kept)
  const expired = await expire(deps, url)
  await markRemovedChannels(over(client), REMOVALS_SECONDS)
  let audit: Audit | undefined
  if (monotonicMs() >= (memory.audit?.dueMs ?? -Infinity)) {
    const outcome = await failures.collect('audit', { signal }, () =>
      auditArchive({ ...deps, reader: over(client), url, graceSeconds }),
    )
    if ('value' in outcome) {
      audit = outcome.value
      memory.audit = { dueMs: monotonicMs() + AUDIT_MS }
    } else memory.audit = { dueMs: monotonicMs() + AUDIT_RETRY_MS, error: outcome.error }
  } else if (memory.audit?.error !== undefined) failures.add('audit', memory.audit.error, {})
  await plan(deps, Math.max(afterMs, MIN_AFTER_MS) / 1000)
  const done = await exportDue(deps, url)
  const deletedFiles = before + (await sweep(deps, graceSeconds, kept))
  failures.log()
  return { ...done, expired, deletedFiles, ...(audit === undefined ? {} : { audit }), failures: failures.sentences }
}

type FailingStep = 'expiry' | 'audit' | 'export' | 'sweep'

const STEPS: Readonly<Record<FailingStep, string>> = {
  expiry: 'expired records could not be removed from the archive',
  audit: 'the archive could not be compared with the database',
  export: 'records could not be copied to the archive',
  sweep: 'files could not be deleted from the archive',
}

/** What failed in a round while the rest went on: one line of the log for each step. */
class Failures {
  readonly #logger: Logger
  readonly #steps = new Map<FailingStep, { count: number; first: unknown; facts: object }>()

  constructor(logger: Logger) {
    this.#logger = logger
  }

  /** Rejects when the round is stopped. */
  async collect<Result>(
    step: FailingStep,
    { signal, ...facts }: { signal: AbortSignal; domain_key?: number; range?: string; path?: string },
    work: () => Promise<Result>,
  ): Promise<{ value: Result } | { error: unknown }> {
    try {
      return { value: await work() }
    } catch (error) {
      signal.throwIfAborted()
      this.count(step, error, facts)
      return { error }
    }
  }

  /** A failure of this round. */
  count(step: FailingStep, error: unknown, facts: object): void {
    this.add(step, error, facts)
    ARCHIVE_METRICS.failures.add({ step })
  }

  add(step: FailingStep, error: unknown, facts: object): void {
    const known = this.#steps.get(step) ?? { count: 0, first: error, facts }
    this.#steps.set(step, { ...known, count: known.count + 1 })
  }

  get sentences(): string[] {
    return [...this.#steps].map(([step, { count, first }]) => `${STEPS[step]} (${count} failed): ${described(first)}`)
  }

  log(): void {
    for (const [step, { count, first, facts }] of this.#steps)
      this.#logger.warn({ err: first, failed: count, ...facts }, `${STEPS[step]}; retrying`)
  }
}

type RoundDeps = {
  database: Database
  store: ArchiveStore
  logger: Logger
  memory: ArchiverMemory
  client: pg.Client
  now: () => number
  atStep: (step: Step) => Promise<void>
  signal: AbortSignal
  /** Rejects, and ends the round, when the folder is gone. */
  check: () => Promise<void>
  limits: PieceLimits
  exportSilenceMs: number
  failures: Failures
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
  const { database, signal, failures } = deps
  let expired = 0
  const failed: number[] = []
  for (;;) {
    const domains = await findExpired(database.db, failed, EXPIRED_RANGES)
    if (domains.length === 0) return expired
    for (const { domainKey, ranges } of domains) {
      signal.throwIfAborted()
      const outcome = await failures.collect('expiry', { signal, domain_key: domainKey }, async () => {
        const table = await ensureTable(database.db, domainKey, url)
        const isCommitted = await commitOrDiscard(deps, domainKey, () =>
          commitSnapshot(deps, table, { ranges, added: [] }, (tx) => deleteRanges(tx, ranges)),
        )
        if (!isCommitted) await deleteRanges(database.db, ranges)
      })
      if ('value' in outcome) expired += ranges.length
      else failed.push(domainKey)
    }
  }
}

/** What is written by work that fails is swept at once: a full store must not stay full of it. */
async function commitOrDiscard<Result>(
  { database }: RoundDeps,
  domainKey: number,
  work: () => Promise<Result>,
): Promise<Result> {
  try {
    return await work()
  } catch (error) {
    // Of no use when the database is the fault: the sweep finds the files a day later.
    await discardFiles(database.db, domainKey).catch(() => undefined)
    throw error
  }
}

async function plan({ database, client, signal, atStep }: RoundDeps, afterSeconds: number): Promise<void> {
  const reader = over(client)
  await deleteOldPlans(database.db)
  for (const range of await findUnplanned(reader, afterSeconds)) {
    signal.throwIfAborted()
    const domainKeys = await findDomainsIn(reader, range.leaf)
    if (domainKeys === undefined) continue
    await database.transaction(async (tx) => {
      await lockProjections(tx)
      await insertRanges(tx, range, domainKeys)
    })
    await atStep('planned')
  }
}

async function exportDue(deps: RoundDeps, url: string): Promise<{ exported: number; failed: number }> {
  const { signal, failures, memory } = deps
  let exported = 0
  const deadlineMs = monotonicMs() + MAX_EXPORTING_MS
  // A range that fails is left out until the next round, so that the others go on.
  const failed: RangeKey[] = []
  // A domain that fills the store ends the round, so it is the last one of the next round.
  const last = (memory.filling ??= new Set())
  for (;;) {
    const withoutDomains = [...Map.groupBy(failed, ({ domainKey }) => domainKey)].flatMap(([domainKey, ranges]) =>
      ranges.length < MAX_FAILED_RANGES ? [] : [domainKey],
    )
    const due = await findDue(deps.database.db, { failed, withoutDomains, last: [...last], limit: DUE_DOMAINS })
    if (due.length === 0) {
      last.clear()
      return { exported, failed: failed.length }
    }
    for (const range of due) {
      signal.throwIfAborted()
      if (monotonicMs() > deadlineMs) return { exported, failed: failed.length }
      const facts = { signal, domain_key: range.domainKey, range: range.from }
      const outcome = await failures.collect('export', facts, () =>
        commitOrDiscard(deps, range.domainKey, () => exportOne(deps, url, range)),
      )
      if ('value' in outcome) {
        exported += 1
        continue
      }
      failed.push(range)
      // It fails for all domains: each would fill it again.
      if (isStoreExhausted(outcome.error)) {
        last.add(range.domainKey)
        return { exported, failed: failed.length }
      }
      // A broken connection has lost the lock as well.
      await deps.client.query('SELECT')
    }
  }
}

async function exportOne(deps: RoundDeps, url: string, range: DueRange): Promise<void> {
  const { database, store, client, logger, memory, exportSilenceMs } = deps
  const startedMs = monotonicMs()
  const table = await ensureTable(database.db, range.domainKey, url)
  // Read before the records: a later change is counted above it, and the range is exported again.
  const changes = await findChanges(database.db, range)
  if (changes === undefined) return
  const channels = await findChannelsIn(over(client), range.domainKey, range.leaf)
  // A connection of its own: when the export fails in the middle of a copy, it is closed.
  const reader = await database.dedicated(EXPORT_CONNECTION_NAME)
  database.limitSilence(reader, exportSilenceMs, () => true)
  let copied: ExportedRange
  try {
    copied = await exportRange({ ...deps, client: reader }, table, range, channels)
  } finally {
    await reader.end()
  }
  const { files, records, channelKeys } = copied
  const mark = (tx: Queryable) => markExported(tx, { ...range, changes }, { records, channelKeys })
  if (!(await commitSnapshot(deps, table, { ranges: [range], added: files }, mark))) await mark(database.db)
  else if (memory.isWarned !== true) {
    const warning = await store.warningFor(table.location)
    if (warning !== undefined) logger.warn({ path: table.location }, warning)
    memory.isWarned = warning !== undefined
  }
  ARCHIVE_METRICS.exports.add({})
  ARCHIVE_METRICS.exportedRecords.add({}, records)
  ARCHIVE_METRICS.exportSeconds.add({}, (monotonicMs() - startedMs) / 1000)
}

/** `kept`: files that this round could not delete. */
async function sweep(
  { database, store, signal, check, atStep, failures }: RoundDeps,
  graceSeconds: number,
  kept: Set<number>,
): Promise<number> {
  let deleted = 0
  for (let afterKey = 0; ;) {
    const files = await findSwept(database.db, { afterKey, graceSeconds, limit: SWEPT_FILES })
    const last = files.at(-1)
    if (last === undefined) return deleted
    afterKey = last.key
    await check()
    const gone: number[] = []
    const tried = files.filter(({ key }) => !kept.has(key))
    for (let first = 0; first < tried.length; first += REMOVED_AT_ONCE) {
      signal.throwIfAborted()
      const some = tried.slice(first, first + REMOVED_AT_ONCE)
      const path = some[0]?.path
      const facts = { signal, ...(path === undefined ? {} : { path }) }
      const outcome = await failures.collect('sweep', facts, () => store.removeFiles(some))
      for (const file of some) {
        const error = 'error' in outcome ? outcome.error : outcome.value.get(file.path)
        if (error === undefined) gone.push(file.key)
        else kept.add(file.key)
        if (error !== undefined && 'value' in outcome) failures.count('sweep', error, { path: file.path })
      }
      // The rest would wait for it as well.
      if ('error' in outcome) for (const { key } of tried.slice(first + REMOVED_AT_ONCE)) kept.add(key)
    }
    await atStep('files deleted')
    await deleteFiles(database.db, gone)
    deleted += gone.length
  }
}

/** Rounds every ten minutes until it is stopped. */
export function startArchiver(options: ArchiverOptions): PeriodicRounds {
  const { logger } = options
  const memory: ArchiverMemory = {}
  return startPeriodicRounds({
    firstPauseMs: options.firstPauseMs ?? FIRST_PAUSE_MS,
    pauseMs: options.intervalMs ?? INTERVAL_MS,
    round: (signal) => archiveOnce({ ...options, memory }, signal),
    onFailure: (error) => logger.warn({ err: error }, 'failed to maintain the archive; retrying'),
  })
}
