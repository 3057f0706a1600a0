/** What a manifest says of a data file: counts, nulls, and bounds by which engines leave out files. */
import { compareText } from '#core/text.ts'
import { COLUMNS } from './columns.ts'
import type { ColumnType } from './columns.ts'
import type { Value } from './copied-rows.ts'

/** By field id; bounds as hexadecimal text of Iceberg's single values. A column without a bound has none, which is always right. */
export type FileStatistics = {
  nulls: Record<string, number>
  lower: Record<string, string>
  upper: Record<string, string>
}

/**
 * Longer texts are no bounds. A cut upper bound would have to be rounded up by code point, and a wrong one loses rows.
 */
const MAX_BOUND_BYTES = 128

type Comparable = string | number | bigint

const BOUNDED: ReadonlySet<ColumnType> = new Set(['string', 'timestamptz', 'double', 'long', 'int'])

const isLess = (left: Comparable, right: Comparable) =>
  typeof left === 'string' && typeof right === 'string' ? compareText(left, right) < 0 : left < right

export class StatisticsOfFile {
  readonly #nulls = COLUMNS.map(() => 0)
  readonly #lower: (Comparable | undefined)[] = COLUMNS.map(() => undefined)
  readonly #upper: (Comparable | undefined)[] = COLUMNS.map(() => undefined)

  add(values: readonly Value[]): void {
    for (let column = 0; column < values.length; column++) {
      const value = values[column] as Value
      if (value === null) {
        this.#nulls[column] = (this.#nulls[column] as number) + 1
        continue
      }
      if (typeof value === 'boolean' || typeof value === 'object') continue
      const [lower, upper] = [this.#lower[column], this.#upper[column]]
      // Most texts equal their predecessor.
      if (value === upper || value === lower) continue
      if (lower === undefined || isLess(value, lower)) this.#lower[column] = value
      if (upper === undefined || isLess(upper, value)) this.#upper[column] = value
    }
  }

  result(): FileStatistics {
    const found: FileStatistics = { nulls: {}, lower: {}, upper: {} }
    for (const [index, { id, type }] of COLUMNS.entries()) {
      found.nulls[id] = this.#nulls[index] as number
      const [lower, upper] = [this.#lower[index], this.#upper[index]]
      if (!BOUNDED.has(type) || lower === undefined || upper === undefined) continue
      const bounds = [boundOf(type, lower), boundOf(type, upper)] as const
      if (bounds[0] === undefined || bounds[1] === undefined) continue
      found.lower[id] = bounds[0]
      found.upper[id] = bounds[1]
    }
    return found
  }
}

/** Iceberg specification, appendix D: numbers are little-endian, texts are UTF-8. */
function boundOf(type: ColumnType, value: Comparable): string | undefined {
  if (type === 'string') {
    const bytes = Buffer.from(value as string)
    return bytes.length > MAX_BOUND_BYTES ? undefined : bytes.toString('hex')
  }
  const bytes = Buffer.alloc(type === 'int' ? 4 : 8)
  if (type === 'int') bytes.writeInt32LE(value as number)
  else if (type === 'double') bytes.writeDoubleLE(value as number)
  else bytes.writeBigInt64LE(value as bigint)
  return bytes.toString('hex')
}
