/** The catalogue of archived records, their state, and their verification. */
import type { AccessPolicy, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { Slots } from '#core/slots.ts'
import { formatTime } from '#core/time.ts'
import { openStore, storeFailure } from './open-store.ts'
import {
  countRange,
  findCatalogueTable,
  findExportedAfter,
  findFacts,
  findFilesOfRange,
  findMetadataFiles,
  findRound,
  markAllDamaged,
  markDamaged,
} from './repository.ts'
import type { ArchiveFacts, CatalogueTable, ExportedRangeFacts, RoundFacts } from './repository.ts'
import { RETRY_LIMITS } from './s3-target.ts'
import type { S3Target } from './s3-target.ts'
import type { History, HistoryCheck } from './schema.ts'
import { SIZES_AT_ONCE, sizesOf } from './store.ts'

export const NAMESPACE = 'history'
export const TABLE = 'records'

export type Catalogue = {
  /** Where engines find the bucket, by the names of PyIceberg and of Iceberg for Java. They use keys of their own. */
  readonly properties: Readonly<Record<string, string>>
  /** The table; undefined before its first export. */
  find(): Promise<CatalogueTable | undefined>
}

const COUNT_DEADLINE_MS = 60_000
const MAX_VERIFICATIONS = 2
const RETRY_SECONDS = 5
/** A caller waits. */
const STORE_RETRY = { ...RETRY_LIMITS, attemptMs: 10_000, deadlineMs: 15_000 }

export class ArchiveService {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #isEnabled: boolean
  /** Where the bucket is, if the archive is in one. */
  readonly #s3: S3Target | undefined
  readonly #slots = new Slots({
    what: 'verifications of the archive',
    max: MAX_VERIFICATIONS,
    share: 1,
    retryAfterSeconds: RETRY_SECONDS,
  })

  constructor({
    database,
    access,
    isEnabled,
    s3,
  }: {
    database: Database
    access: AccessPolicy
    isEnabled: boolean
    s3?: S3Target | undefined
  }) {
    this.#s3 = s3
    this.#database = database
    this.#access = access
    this.#isEnabled = isEnabled
  }

  /**
   * Requires `subscribe` on all channels of the domain, because a file holds the records of many: the rights on single channels cannot be
   * kept inside it. Throws `forbidden` and `not_found` (decision 45).
   */
  async enterCatalogue(caller: UserPrincipal, domainId: string): Promise<Catalogue> {
    const { domainKey } = await this.#enter(caller, domainId)
    const properties = this.#s3 === undefined ? {} : propertiesOf(this.#s3)
    return { properties, find: () => findCatalogueTable(this.#database.db, domainKey) }
  }

  /** Requires the same. */
  async view(caller: UserPrincipal, domainId: string): Promise<History> {
    const { domainKey } = await this.#enter(caller, domainId)
    const [facts, round] = [await findFacts(this.#database.db, domainKey), await findRound(this.#database.db)]
    return { is_enabled: this.#isEnabled, ...presentFacts(facts), ...presentRound(round) }
  }

  /**
   * Compares one range with the database: counts, and files with their sizes. Requires `update` on the domain, and the rights of the
   * catalogue. Throws `timeout` when the records cannot be counted in time, and `rate_limited` when too many verifications run.
   */
  async verify(caller: UserPrincipal, domainId: string, after: string | undefined): Promise<HistoryCheck> {
    const domain = await this.#enter(caller, domainId)
    domain.require('update')
    const place = after === undefined ? undefined : parsePlace(after)
    const range = await findExportedAfter(this.#database.db, domain.domainKey, place)
    if (range === undefined) return { records: 0, files: 0, faults: [] }
    const release = await this.#slots.take(domain.domainId)
    try {
      return await verifyRange({ database: this.#database, target: this.#target() }, range, place === undefined)
    } finally {
      release()
    }
  }

  #target(): S3Target | undefined {
    return this.#s3 === undefined ? undefined : { ...this.#s3, retry: this.#s3.retry ?? STORE_RETRY }
  }

  async #enter(caller: UserPrincipal, domainId: string) {
    const domain = await this.#access.enter(caller, domainId)
    domain.require('channel_subscribe')
    return domain
  }
}

function presentFacts(facts: ArchiveFacts): Omit<History, 'is_enabled'> {
  return {
    ...(facts.location === null ? {} : { table: `${NAMESPACE}.${TABLE}`, location: facts.location }),
    records: facts.records,
    files: facts.files,
    bytes: facts.bytes,
    ranges: facts.ranges,
    waiting_ranges: facts.waiting,
    ...(facts.oldest === null ? {} : { oldest_arrival: formatTime(facts.oldest) }),
    ...(facts.until === null ? {} : { arrivals_until: formatTime(facts.until) }),
    ...(facts.exportedAt === null ? {} : { exported_at: formatTime(facts.exportedAt) }),
    ...(facts.waitingSince === null ? {} : { waiting_since: formatTime(facts.waitingSince) }),
  }
}

function presentRound(round: RoundFacts | undefined): Pick<History, 'succeeded_at' | 'failure'> {
  if (round === undefined) return {}
  const { succeededAt, failure } = round
  return { succeeded_at: formatTime(succeededAt), ...(failure === null ? {} : { failure }) }
}

type VerifyDeps = { database: Database; target: S3Target | undefined }
type Place = { from: string; retentionDays: number }

/** The metadata of the table is looked at with the first range. */
async function verifyRange(deps: VerifyDeps, range: ExportedRangeFacts, isFirst: boolean): Promise<HistoryCheck> {
  const { database } = deps
  const { db } = database
  const { domainKey } = range
  const { faults, files } = await faultsOf(deps, range)
  if (faults.length > 0) await markDamaged(db, range)
  let looked = files
  if (isFirst) {
    const metadata = await findMetadataFiles(db, domainKey)
    const damaged = await faultsOfFiles(deps, metadata)
    if (damaged.length > 0) await database.transaction((tx) => markAllDamaged(tx, domainKey))
    faults.push(...damaged)
    looked += metadata.length
  }
  return {
    from: formatTime(range.from),
    retention_days: range.retentionDays,
    records: range.records,
    files: looked,
    faults,
    next: `${range.retentionDays}_${Date.parse(formatTime(range.from))}`,
  }
}

async function faultsOf(deps: VerifyDeps, range: ExportedRangeFacts): Promise<{ faults: string[]; files: number }> {
  const { database } = deps
  const files = await findFilesOfRange(database.db, range)
  const faults = await faultsOfFiles(deps, files)
  const counted = await database.snapshot((tx) => countRange(tx, range), COUNT_DEADLINE_MS)
  const inFiles = files.reduce((sum, { records }) => sum + records, 0)
  if (counted !== undefined && counted !== inFiles)
    faults.push(`the files hold ${inFiles} records, and the database holds ${counted}`)
  return { faults, files: files.length }
}

async function faultsOfFiles(
  { target }: VerifyDeps,
  files: readonly { path: string; bytes: number }[],
): Promise<string[]> {
  const [first] = files
  if (first === undefined) return []
  const store = await openStore(first.path, target)
  const faults: string[] = []
  // Some at a time: of a store that does not answer, the caller learns with the first.
  for (let at = 0; at < files.length; at += SIZES_AT_ONCE) {
    const some = files.slice(at, at + SIZES_AT_ONCE)
    const sizes = await sizesOf(
      store,
      some.map(({ path }) => path),
    )
    for (const [index, { path, bytes }] of some.entries()) {
      const found = sizes[index]
      // A store that cannot be read is no damage of the range.
      if (found === undefined || 'error' in found) {
        const why = storeFailure(found?.error)
        const message = why === undefined ? 'the archive cannot be read' : `the archive cannot be read: ${why}`
        throw new ServiceError('unavailable', message, { cause: found?.error })
      }
      if (found.size === undefined) faults.push(`${path} is missing`)
      else if (found.size !== bytes) faults.push(`${path} has ${found.size} bytes instead of ${bytes}`)
    }
  }
  return faults
}

function propertiesOf({ endpoint, region, isPathStyle }: S3Target): Record<string, string> {
  return {
    's3.endpoint': endpoint,
    's3.region': region,
    'client.region': region,
    's3.path-style-access': String(isPathStyle),
    's3.force-virtual-addressing': String(!isPathStyle),
  }
}

const PLACE = /^(\d{1,5})_(\d{1,15})$/

function parsePlace(text: string): Place {
  const [, days, ms] = PLACE.exec(text) ?? []
  const time = new Date(Number(ms))
  if (days === undefined || Number(days) > 32_767 || Number.isNaN(time.getTime()) || time.getUTCFullYear() > 9999)
    throw refusedField('after', 'must be the next of an earlier answer')
  return { from: time.toISOString(), retentionDays: Number(days) }
}
