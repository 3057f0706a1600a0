/**
 * Counts, sums and bounds of records by series, bucket and retention class, and the newest record of each. The rows are in one array
 * of numbers: some 100,000 objects that live for a few seconds would be copied by every garbage collection.
 */
import type { ResolvedRecord } from '../senml/index.ts'
import { DecimalSum, MAX_EXACT_TOTAL, millionthsOf } from './decimal-sum.ts'

const INITIAL_ROWS = 1024
const ROW_LENGTH = 17

/** Indexes of the numbers in a row; NaN means no value. */
const COLUMNS = {
  channelKey: 0,
  seriesKey: 1,
  /** Quarters of an hour since 2000. */
  bucket: 2,
  retentionDays: 3,
  /** The lowest number among its records. */
  protocol: 4,
  records: 5,
  valueCount: 6,
  min: 7,
  max: 8,
  /** The sum of the values, where they are whole millionths and not too many; none where there is a `decimalSum`. */
  millionths: 9,
  newestMicros: 10,
  newestBatchSeq: 11,
  newestMessage: 12,
  newestChunk: 13,
  /** Counted from 1, as PostgreSQL does. */
  newestPlace: 14,
  newestProtocol: 15,
  newestValue: 16,
} as const

export type Column = keyof typeof COLUMNS

/** The place where the records of a chunk are stored. */
export type Where = {
  channelKey: number
  batchSeq: number
  message: number
  chunk: number
  retentionDays: number
  protocol: number
}

export class AggregateRows {
  #numbers = new Float64Array(INITIAL_ROWS * ROW_LENGTH)
  #length = 0
  /** The row of the quarter that was last used, by series. */
  readonly #current = new Map<number, number>()
  /** The other rows, by series, quarter and class. */
  readonly #others = new Map<string, number>()
  /** Sums of rows for which `millionths` is too small or too coarse. */
  readonly #sums = new Map<number, DecimalSum>()
  /** The newest records that are more than a value that is a number, by row. */
  readonly #newest = new Map<number, ResolvedRecord>()

  get length(): number {
    return this.#length
  }

  get(row: number, column: Column): number {
    return this.#numbers[row * ROW_LENGTH + COLUMNS[column]] as number
  }

  /** Returns one column of the rows from `first` to before `end`. */
  column(column: Column, first: number, end: number): Float64Array {
    const found = new Float64Array(end - first)
    for (let index = 0; index < found.length; index++) found[index] = this.get(first + index, column)
    return found
  }

  /** The sum where `millionths` do not hold it, in a form that PostgreSQL reads as numeric. */
  decimalSum(row: number): string | undefined {
    return this.#sums.get(row)?.toNumeric() ?? undefined
  }

  /** The newest record, where its value does not say all of it. */
  newestRecord(row: number): ResolvedRecord | undefined {
    return this.#newest.get(row)
  }

  /** Counts a record of this time, `place` in its chunk counted from 1. */
  add(seriesKey: number, bucket: number, micros: number, where: Where, place: number, record: ResolvedRecord): void {
    const row = this.#rowOf(where.channelKey, seriesKey, bucket, where.retentionDays)
    const at = row * ROW_LENGTH
    const numbers = this.#numbers
    numbers[at + COLUMNS.records] = (numbers[at + COLUMNS.records] as number) + 1
    if (where.protocol < (numbers[at + COLUMNS.protocol] as number)) numbers[at + COLUMNS.protocol] = where.protocol
    if (record.value !== undefined) this.#addValue(row, record.value)
    const newest = numbers[at + COLUMNS.newestMicros] as number
    // Among records of equal time, the record of the later message is newer. Within one message, the earlier record is newer.
    const isNewer =
      micros === newest
        ? numbers[at + COLUMNS.newestMessage] !== where.message ||
          numbers[at + COLUMNS.newestBatchSeq] !== where.batchSeq
        : micros > newest
    if (isNewer) this.#setNewest(row, micros, where, place, record)
  }

  #rowOf(channelKey: number, seriesKey: number, bucket: number, retentionDays: number): number {
    const current = this.#current.get(seriesKey)
    if (current === undefined) {
      const first = this.#newRow(channelKey, seriesKey, bucket, retentionDays)
      this.#current.set(seriesKey, first)
      return first
    }
    const [ofBucket, ofDays] = [this.get(current, 'bucket'), this.get(current, 'retentionDays')]
    if (ofBucket === bucket && ofDays === retentionDays) return current
    const key = `${seriesKey} ${bucket} ${retentionDays}`
    const row = this.#others.get(key) ?? this.#newRow(channelKey, seriesKey, bucket, retentionDays)
    this.#others.delete(key)
    this.#others.set(`${seriesKey} ${ofBucket} ${ofDays}`, current)
    this.#current.set(seriesKey, row)
    return row
  }

  #newRow(channelKey: number, seriesKey: number, bucket: number, retentionDays: number): number {
    const row = this.#length++
    if (this.#length * ROW_LENGTH > this.#numbers.length) {
      const larger = new Float64Array(this.#numbers.length * 2)
      larger.set(this.#numbers)
      this.#numbers = larger
    }
    const at = row * ROW_LENGTH
    const numbers = this.#numbers
    numbers.fill(NaN, at, at + ROW_LENGTH)
    numbers[at + COLUMNS.channelKey] = channelKey
    numbers[at + COLUMNS.seriesKey] = seriesKey
    numbers[at + COLUMNS.bucket] = bucket
    numbers[at + COLUMNS.retentionDays] = retentionDays
    numbers[at + COLUMNS.protocol] = Infinity
    numbers[at + COLUMNS.records] = 0
    numbers[at + COLUMNS.valueCount] = 0
    numbers[at + COLUMNS.newestMicros] = -Infinity
    return row
  }

  #addValue(row: number, value: number): void {
    const at = row * ROW_LENGTH
    this.#numbers[at + COLUMNS.valueCount] = (this.#numbers[at + COLUMNS.valueCount] as number) + 1
    this.#widen(at, value)
    const millionths = millionthsOf(value)
    if (Number.isNaN(millionths)) this.#sumOf(row).add(value)
    else this.#addMillionths(row, millionths)
  }

  #widen(at: number, value: number): void {
    const numbers = this.#numbers
    // Neither is true of the NaN that stands there at first.
    if (!((numbers[at + COLUMNS.min] as number) <= value)) numbers[at + COLUMNS.min] = value
    if (!((numbers[at + COLUMNS.max] as number) >= value)) numbers[at + COLUMNS.max] = value
  }

  /** The number must be below `MAX_EXACT_TOTAL`. */
  #addMillionths(row: number, millionths: number): void {
    const at = row * ROW_LENGTH + COLUMNS.millionths
    const before = this.#numbers[at] as number
    const sum = Number.isNaN(before) ? millionths : before + millionths
    if (Math.abs(sum) < MAX_EXACT_TOTAL && !this.#sums.has(row)) this.#numbers[at] = sum
    else this.#sumOf(row).addMillionths(millionths)
  }

  #setNewest(row: number, micros: number, where: Where, place: number, record: ResolvedRecord): void {
    const at = row * ROW_LENGTH
    const numbers = this.#numbers
    numbers[at + COLUMNS.newestMicros] = micros
    numbers[at + COLUMNS.newestBatchSeq] = where.batchSeq
    numbers[at + COLUMNS.newestMessage] = where.message
    numbers[at + COLUMNS.newestChunk] = where.chunk
    numbers[at + COLUMNS.newestPlace] = place
    numbers[at + COLUMNS.newestProtocol] = where.protocol
    const { value, sum, updateTimeSeconds } = record
    numbers[at + COLUMNS.newestValue] = value ?? NaN
    if (value === undefined || sum !== undefined || updateTimeSeconds !== undefined) this.#newest.set(row, record)
    else if (this.#newest.size > 0) this.#newest.delete(row)
  }

  /** Returns the decimal sum of the row, which replaces `millionths` from here on. */
  #sumOf(row: number): DecimalSum {
    const known = this.#sums.get(row)
    if (known !== undefined) return known
    const sum = new DecimalSum()
    const at = row * ROW_LENGTH + COLUMNS.millionths
    const millionths = this.#numbers[at] as number
    if (!Number.isNaN(millionths)) sum.addMillionths(millionths)
    this.#numbers[at] = NaN
    this.#sums.set(row, sum)
    return sum
  }
}
