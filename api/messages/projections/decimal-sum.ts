/**
 * The exact sum of doubles as their shortest decimals, which are what publishers wrote: the same number, to the last digit and
 * with as many decimal places, as `exactSum` of rollups.ts makes in SQL.
 */

/** Most values are whole millionths below this: integers of at most 15 digits, which a double holds exactly. */
const MAX_MILLIONTHS_VALUE = 1e9
const MILLIONTHS_SCALE = 6
/** Below this the sum of two of them is a double that has lost no digit; beyond, it moves to a bigint. */
export const MAX_EXACT_TOTAL = 2 ** 52

/** From here on not every integer is a double. */
const FIRST_EVEN_INTEGER = 2 ** 53

/** Decimal digits that tell any two doubles apart. */
const MAX_DIGITS = 17

const DECIMAL = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/

/** A finite number in whole millionths, where it is so many of them; NaN for others. */
export function millionthsOf(value: number): number {
  const millionths = Math.round(value * 1e6)
  return Math.abs(value) < MAX_MILLIONTHS_VALUE && millionths / 1e6 === value ? millionths : NaN
}

export class DecimalSum {
  #millionths = 0
  #manyMillionths = 0n
  #hasMillionths = false
  /** Everything else: digits times 10 to the power of -scale. */
  #others: { digits: bigint; scale: number } | undefined

  /** A finite number. */
  add(value: number): void {
    const millionths = millionthsOf(value)
    if (Number.isNaN(millionths)) this.#addDecimal(value)
    else this.addMillionths(millionths)
  }

  /** Whole millionths, below `MAX_EXACT_TOTAL`. */
  addMillionths(millionths: number): void {
    this.#hasMillionths = true
    this.#millionths += millionths
    if (Math.abs(this.#millionths) < MAX_EXACT_TOTAL) return
    this.#manyMillionths += BigInt(this.#millionths)
    this.#millionths = 0
  }

  /** Returns the sum in a form that PostgreSQL reads as numeric; null without any value. */
  toNumeric(): string | null {
    const millionths = this.#manyMillionths + BigInt(this.#millionths)
    const others = this.#others
    if (others === undefined) return this.#hasMillionths ? numeric(millionths, MILLIONTHS_SCALE) : null
    if (!this.#hasMillionths) return numeric(others.digits, others.scale)
    const scale = Math.max(others.scale, MILLIONTHS_SCALE)
    return numeric(rescaled(millionths, MILLIONTHS_SCALE, scale) + rescaled(others.digits, others.scale, scale), scale)
  }

  #addDecimal(value: number): void {
    const { digits, places } = parseDecimal(shortestDecimal(value))
    const scale = Math.max(places, this.#others?.scale ?? 0, 0)
    const sum = this.#others === undefined ? 0n : rescaled(this.#others.digits, this.#others.scale, scale)
    this.#others = { digits: sum + rescaled(digits, places, scale), scale }
  }
}

/** Digits times 10 to the power of -places. */
function parseDecimal(text: string): { digits: bigint; places: number } {
  const [, sign, whole = '', fraction = '', exponent = '0'] = DECIMAL.exec(text) ?? []
  return { digits: BigInt(`${sign}${whole}${fraction}`), places: fraction.length - Number(exponent) }
}

/**
 * Writes the number as PostgreSQL does. PostgreSQL and JavaScript write the shortest decimal that is read back as the same double, but only
 * PostgreSQL excludes decimals halfway between two doubles, which occur only among large integers: then it takes the nearest one with a
 * digit more, or two.
 */
function shortestDecimal(value: number): string {
  const text = String(value)
  if (Math.abs(value) < FIRST_EVEN_INTEGER || !isHalfway(text, value)) return text
  for (let precision = 1; precision < MAX_DIGITS; precision++) {
    const longer = value.toPrecision(precision)
    if (Number(longer) === value && !isHalfway(longer, value)) return longer
  }
  return value.toPrecision(MAX_DIGITS)
}

/** Whether the decimal, an integer, lies in the middle between the double and an adjacent one. */
function isHalfway(text: string, value: number): boolean {
  const { digits, places } = parseDecimal(text)
  const written = digits * 10n ** BigInt(-places)
  return [1n, -1n].some((step) => {
    const next = nextDouble(value, step)
    return Number.isFinite(next) && BigInt(value) + BigInt(next) === written * 2n
  })
}

const bits = new DataView(new ArrayBuffer(8))

/** The adjacent double, away from zero or (-1) towards it. */
function nextDouble(value: number, step: bigint): number {
  bits.setFloat64(0, value)
  bits.setBigInt64(0, bits.getBigInt64(0) + step)
  return bits.getFloat64(0)
}

function rescaled(digits: bigint, from: number, to: number): bigint {
  return from === to ? digits : digits * 10n ** BigInt(to - from)
}

function numeric(digits: bigint, scale: number): string {
  return scale === 0 ? String(digits) : `${digits}e-${scale}`
}
