/**
 * What this process committed since its last fold, added up while it is at hand: so the folder need not read it again. A
 * tally is a shortcut and nothing more: batches that are in none are read and folded from the tables.
 */
import { isClearing, protocolNumber, retentionClassOf } from '../message.ts'
import type { ResolvedRecord } from '../senml/index.ts'
import { microsSince2000 } from '../store/binary-rows.ts'
import type { StorableMessage } from '../store/message-rows.ts'
import type { Run } from '../store/runs.ts'
import { BUCKET_SECONDS, runsOf } from '../store/runs.ts'
import { DecimalSum } from './decimal-sum.ts'

const BUCKET_MICROS = BUCKET_SECONDS * 1e6
/** Rows of rollups and of the newest records that one tally holds, each some 200 bytes. */
const MAX_ROWS = 300_000
/** The folder looks at so many batches in a round. */
export const MAX_TALLY_BATCHES = 4_000

/** A row of `rollups` in the making. */
export type Rollup = {
  channelKey: number
  seriesKey: number
  /** Quarters of an hour since 2000. */
  bucket: number
  retentionDays: number
  protocol: number
  records: number
  valueCount: number
  min: number
  max: number
  sum: DecimalSum
}

/** The newest record of a series, and where it is stored. */
export type Newest = {
  channelKey: number
  seriesKey: number
  micros: number
  batchSeq: number
  message: number
  run: number
  /** Counted from 1, as PostgreSQL does. */
  place: number
  retentionDays: number
  protocol: number
  record: ResolvedRecord
}

type SeriesTally = { current: Rollup; others: Map<string, Rollup> | undefined; newest: Newest }
type ClientTally = { firstSeq: number; lastSeq: number; messages: number }
type DomainTally = { messages: number; records: number }

export class Tally {
  readonly seqs: number[] = []
  readonly clients = new Map<number, ClientTally>()
  readonly domains = new Map<number, DomainTally>()
  readonly #series = new Map<number, SeriesTally>()
  #rows = 0
  #records = 0
  #isExact = true

  get records(): number {
    return this.#records
  }

  /** False when it holds a time that is too far away for it: then all of it is left to be folded from the tables. */
  get isExact(): boolean {
    return this.#isExact
  }

  /** Whether another batch may be added; what is not is folded from the tables. */
  get isFull(): boolean {
    return this.#rows >= MAX_ROWS || this.seqs.length >= MAX_TALLY_BATCHES
  }

  /** A committed batch, its messages in the order in which they are numbered; batches of one lane in their order. */
  add(batchSeq: number, batch: readonly StorableMessage[]): void {
    this.seqs.push(batchSeq)
    batch.forEach((storable, number) => {
      // Of it nothing lies in the tables, which others count by.
      if (isClearing(storable.message)) return
      const records = this.#addRecords(batchSeq, number, storable)
      this.#addUsage(batchSeq, storable, records)
    })
  }

  *rollups(): Generator<Rollup> {
    for (const { current, others } of this.#series.values()) {
      yield current
      if (others !== undefined) yield* others.values()
    }
  }

  /** What the rollups of a channel's series come to together: counts alone, as series 0. */
  totals(): Iterable<Rollup> {
    const totals = new Map<string, Rollup>()
    let total: Rollup | undefined
    for (const rollup of this.rollups()) {
      // Most of them belong to the same as the one before.
      if (total === undefined || !isAlike(total, rollup)) {
        const key = `${rollup.channelKey} ${keyOf(rollup.bucket, rollup.retentionDays)}`
        total = totals.get(key) ?? newRollup(rollup, rollup.bucket, 0)
        totals.set(key, total)
      }
      total.records += rollup.records
      total.protocol = Math.min(total.protocol, rollup.protocol)
    }
    return totals.values()
  }

  *newest(): Generator<Newest> {
    for (const { newest } of this.#series.values()) yield newest
  }

  #addRecords(batchSeq: number, number: number, { message, seriesKeys }: StorableMessage): number {
    const { content, access } = message
    if (content.kind !== 'records') return content.kind === 'documents' ? content.documents.length : 1
    const retentionDays = retentionClassOf(access.retentionDays)
    const protocol = protocolNumber(message.protocol)
    const { channelKey } = access
    for (const [runNumber, run] of runsOf(content.records, seriesKeys).entries()) {
      this.#addRun(run, { channelKey, batchSeq, message: number, run: runNumber, retentionDays, protocol })
    }
    return content.records.length
  }

  #addRun(run: Run, where: Where): void {
    const { records, seriesKeys } = run
    const { protocol } = where
    this.#records += records.length
    for (let index = 0; index < records.length; index++) {
      const record = records[index] as ResolvedRecord
      const seriesKey = seriesKeys[index] as number
      const micros = microsSince2000(record.timeSeconds)
      if (!Number.isSafeInteger(micros)) this.#isExact = false
      const bucket = Math.floor(micros / BUCKET_MICROS)
      let series = this.#series.get(seriesKey)
      if (series === undefined) {
        const current = newRollup(where, bucket, seriesKey)
        series = { current, others: undefined, newest: newestOf(where, seriesKey, micros, index, record) }
        this.#series.set(seriesKey, series)
        this.#rows += 2
      } else if (
        micros > series.newest.micros ||
        // Of equal times the later message is newer; of one message the earlier record.
        (micros === series.newest.micros &&
          (series.newest.message !== where.message || series.newest.batchSeq !== where.batchSeq))
      ) {
        series.newest = newestOf(where, seriesKey, micros, index, record)
      }
      let rollup = series.current
      if (rollup.bucket !== bucket || rollup.retentionDays !== where.retentionDays)
        rollup = this.#turnTo(series, seriesKey, where, bucket)
      rollup.records += 1
      if (protocol < rollup.protocol) rollup.protocol = protocol
      const { value } = record
      if (value === undefined) continue
      rollup.valueCount += 1
      if (value < rollup.min) rollup.min = value
      if (value > rollup.max) rollup.max = value
      rollup.sum.add(value)
    }
  }

  /** Makes the rollup of another bucket the current one of the series. */
  #turnTo(series: SeriesTally, seriesKey: number, where: Where, bucket: number): Rollup {
    const others = (series.others ??= new Map())
    others.set(keyOf(series.current.bucket, series.current.retentionDays), series.current)
    const key = keyOf(bucket, where.retentionDays)
    let rollup = others.get(key)
    if (rollup === undefined) {
      rollup = newRollup(where, bucket, seriesKey)
      this.#rows += 1
    } else {
      others.delete(key)
    }
    series.current = rollup
    return rollup
  }

  #addUsage(batchSeq: number, { message: { access } }: StorableMessage, records: number): void {
    const domain = this.domains.get(access.domainKey)
    if (domain === undefined) this.domains.set(access.domainKey, { messages: 1, records })
    else {
      domain.messages += 1
      domain.records += records
    }
    if (access.publisherKey === null) return
    const client = this.clients.get(access.publisherKey)
    if (client === undefined)
      this.clients.set(access.publisherKey, { firstSeq: batchSeq, lastSeq: batchSeq, messages: 1 })
    else {
      client.lastSeq = batchSeq
      client.messages += 1
    }
  }
}

type Where = {
  channelKey: number
  batchSeq: number
  message: number
  run: number
  retentionDays: number
  protocol: number
}

/** Of the same channel, bucket and class. */
function isAlike(one: Rollup, other: Rollup): boolean {
  return one.channelKey === other.channelKey && one.bucket === other.bucket && one.retentionDays === other.retentionDays
}

function newRollup(
  { channelKey, retentionDays, protocol }: Pick<Rollup, 'channelKey' | 'retentionDays' | 'protocol'>,
  bucket: number,
  seriesKey: number,
): Rollup {
  const nothing = { records: 0, valueCount: 0, min: Infinity, max: -Infinity, sum: new DecimalSum() }
  return { channelKey, seriesKey, bucket, retentionDays, protocol, ...nothing }
}

function newestOf(where: Where, seriesKey: number, micros: number, index: number, record: ResolvedRecord): Newest {
  const { channelKey, batchSeq, message, run, retentionDays, protocol } = where
  return { channelKey, seriesKey, micros, batchSeq, message, run, place: index + 1, retentionDays, protocol, record }
}

function keyOf(bucket: number, retentionDays: number): string {
  return `${bucket} ${retentionDays}`
}
