/**
 * What records come to by series, quarter of an hour and retention class, and the newest of each. The rows lie in one array of
 * numbers: as objects they would outlive two collections, each of which moves all of them, and be found dead by a third.
 */
import type { ResolvedRecord } from '../senml/index.ts'
import { DecimalSum, MAX_EXACT_TOTAL, millionthsOf } from './decimal-sum.ts'

const INITIAL_ROWS = 1024
const ROW_LENGTH = 18

/** Places of the numbers in a row; NaN is none. */
export const COLUMNS = {
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
  /** Microseconds since 2000, once it is known. */
  newestArrival: 11,
  newestBatchSeq: 12,
  newestMessage: 13,
  newestRun: 14,
  /** Counted from 1, as PostgreSQL does. */
  newestPlace: 15,
  newestProtocol: 16,
  newestValue: 17,
} as const

export type Column = keyof typeof COLUMNS

/** Where the records of a run are stored. */
export type Where = {
  channelKey: number
  batchSeq: number
  message: number
  run: number
  retentionDays: number
  protocol: number
}

export class TallyRows {
  #numbers = new Float64Array(INITIAL_ROWS * ROW_LENGTH)
  #length = 0
  readonly #retentionClasses = new Set<number>()
  /** By series: the row of the quarter that was last asked for. */
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

  get retentionClasses(): ReadonlySet<number> {
    return this.#retentionClasses
  }

  get(row: number, column: Column): number {
    return this.#numbers[row * ROW_LENGTH + COLUMNS[column]] as number
  }

  /** The same number of many rows. */
  column(column: Column, rows: readonly number[]): Float64Array {
    const place = COLUMNS[column]
    const found = new Float64Array(rows.length)
    for (let index = 0; index < rows.length; index++)
      found[index] = this.#numbers[(rows[index] as number) * ROW_LENGTH + place] as number
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

  /** Counts a record of this time, `place` in its run counted from 1. */
  add(seriesKey: number, bucket: number, micros: number, where: Where, place: number, record: ResolvedRecord): void {
    const row = this.#rowOf(where.channelKey, seriesKey, bucket, where.retentionDays)
    const at = row * ROW_LENGTH
    const numbers = this.#numbers
    numbers[at + COLUMNS.records] = (numbers[at + COLUMNS.records] as number) + 1
    if (where.protocol < (numbers[at + COLUMNS.protocol] as number)) numbers[at + COLUMNS.protocol] = where.protocol
    if (record.value !== undefined) this.#addValue(row, record.value)
    const newest = numbers[at + COLUMNS.newestMicros] as number
    // Of equal times the later message is newer; of one message the earlier record.
    const isNewer =
      micros === newest
        ? numbers[at + COLUMNS.newestMessage] !== where.message ||
          numbers[at + COLUMNS.newestBatchSeq] !== where.batchSeq
        : micros > newest
    if (isNewer) this.#setNewest(row, micros, where, place, record)
  }

  /**
   * Adds what rows of another one come to, which is of later messages. `arrivals`: when the batches arrived that their newest records are
   * of, in microseconds since 2000.
   */
  addRow(other: TallyRows, otherRow: number, arrivals: ReadonlyMap<number, number>): void {
    const theirs = other.#numbers
    const from = otherRow * ROW_LENGTH
    const row = this.#rowOf(
      theirs[from + COLUMNS.channelKey] as number,
      theirs[from + COLUMNS.seriesKey] as number,
      theirs[from + COLUMNS.bucket] as number,
      theirs[from + COLUMNS.retentionDays] as number,
    )
    const numbers = this.#numbers
    const at = row * ROW_LENGTH
    for (const place of [COLUMNS.records, COLUMNS.valueCount])
      numbers[at + place] = (numbers[at + place] as number) + (theirs[from + place] as number)
    numbers[at + COLUMNS.protocol] = Math.min(
      numbers[at + COLUMNS.protocol] as number,
      theirs[from + COLUMNS.protocol] as number,
    )
    this.#widen(at, theirs[from + COLUMNS.min] as number)
    this.#widen(at, theirs[from + COLUMNS.max] as number)
    const millionths = theirs[from + COLUMNS.millionths] as number
    if (!Number.isNaN(millionths)) this.#addMillionths(row, millionths)
    const sum = other.#sums.get(otherRow)
    if (sum !== undefined) this.#sumOf(row).addSum(sum)
    if ((theirs[from + COLUMNS.newestMicros] as number) < (numbers[at + COLUMNS.newestMicros] as number)) return
    for (let place: number = COLUMNS.newestMicros; place < ROW_LENGTH; place++)
      numbers[at + place] = theirs[from + place] as number
    numbers[at + COLUMNS.newestArrival] = arrivals.get(theirs[from + COLUMNS.newestBatchSeq] as number) ?? NaN
    const newest = other.#newest.get(otherRow)
    if (newest === undefined) this.#newest.delete(row)
    else this.#newest.set(row, newest)
  }

  /** The memory of the numbers is kept for the next ones, or half of it where these needed less than a quarter. */
  clear(): void {
    const { length } = this.#numbers
    if (this.#length * ROW_LENGTH < length / 4 && length > INITIAL_ROWS * ROW_LENGTH)
      this.#numbers = new Float64Array(length / 2)
    this.#length = 0
    this.#retentionClasses.clear()
    this.#current.clear()
    this.#others.clear()
    this.#sums.clear()
    this.#newest.clear()
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
    this.#retentionClasses.add(retentionDays)
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

  /** NaN widens nothing, and is widened by anything. */
  #widen(at: number, value: number): void {
    if (Number.isNaN(value)) return
    const numbers = this.#numbers
    if (!((numbers[at + COLUMNS.min] as number) <= value)) numbers[at + COLUMNS.min] = value
    if (!((numbers[at + COLUMNS.max] as number) >= value)) numbers[at + COLUMNS.max] = value
  }

  /** Below `MAX_EXACT_TOTAL`. */
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
    numbers[at + COLUMNS.newestRun] = where.run
    numbers[at + COLUMNS.newestPlace] = place
    numbers[at + COLUMNS.newestProtocol] = where.protocol
    const { value, sum, updateTimeSeconds } = record
    numbers[at + COLUMNS.newestValue] = value ?? NaN
    if (value === undefined || sum !== undefined || updateTimeSeconds !== undefined) this.#newest.set(row, record)
    else if (this.#newest.size > 0) this.#newest.delete(row)
  }

  /** From here on it holds the sum of the row instead of `millionths`. */
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
