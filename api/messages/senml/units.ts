/**
 * The units of SenML: the primary ones of RFC 8428 section 12.1 and RFC 8798 section 2, and the secondary ones of RFC 8798 section 3. They
 * serve to show and convert values; other units are stored unchanged.
 */

export type Unit = {
  symbol: string
  /** A secondary unit has a primary one: value in the primary unit = value * scale + offset. */
  primary?: { symbol: string; scale: number; offset: number }
}

// `%`, `g`, `l`, `l/s`, `1/min`, `beat/min`, `beats` and `deg` are in use but not recommended for new senders.
const PRIMARY = [
  'm kg g s A K cd mol Hz rad sr N Pa J W C V F Ohm S Wb T H Cel lm lx Bq Gy Sv kat m2 m3 l m/s m/s2 m3/s l/s',
  'W/m2 cd/m2 bit bit/s lat lon pH dB dBW Bspl count / % %RH %EL EL 1/s 1/min beat/min beats S/m',
  'B VA VAs var vars J/m kg/m3 deg',
].flatMap((symbols) => symbols.split(' '))

const SECONDARY: readonly (readonly [symbol: string, primary: string, scale: number, offset: number])[] = [
  ['ms', 's', 1e-3, 0],
  ['min', 's', 60, 0],
  ['h', 's', 3600, 0],
  ['MHz', 'Hz', 1e6, 0],
  ['kW', 'W', 1000, 0],
  ['kVA', 'VA', 1000, 0],
  ['kvar', 'var', 1000, 0],
  ['Ah', 'C', 3600, 0],
  ['Wh', 'J', 3600, 0],
  ['kWh', 'J', 3_600_000, 0],
  ['varh', 'vars', 3600, 0],
  ['kvarh', 'vars', 3_600_000, 0],
  ['kVAh', 'VAs', 3_600_000, 0],
  ['Wh/km', 'J/m', 3.6, 0],
  ['KiB', 'B', 1024, 0],
  ['GB', 'B', 1e9, 0],
  ['Mbit/s', 'bit/s', 1e6, 0],
  ['B/s', 'bit/s', 8, 0],
  ['MB/s', 'bit/s', 8e6, 0],
  ['mV', 'V', 1e-3, 0],
  ['mA', 'A', 1e-3, 0],
  ['dBm', 'dBW', 1, -30],
  ['ug/m3', 'kg/m3', 1e-9, 0],
  ['mm/h', 'm/s', 1 / 3_600_000, 0],
  ['m/h', 'm/s', 1 / 3600, 0],
  ['ppm', '/', 1e-6, 0],
  ['/100', '/', 1e-2, 0],
  ['/1000', '/', 1e-3, 0],
  ['hPa', 'Pa', 100, 0],
  ['mm', 'm', 1e-3, 0],
  ['cm', 'm', 1e-2, 0],
  ['km', 'm', 1000, 0],
  ['km/h', 'm/s', 1 / 3.6, 0],
]

const UNITS: ReadonlyMap<string, Unit> = new Map<string, Unit>([
  ...PRIMARY.map((symbol): [string, Unit] => [symbol, { symbol }]),
  ...SECONDARY.map(([symbol, primary, scale, offset]): [string, Unit] => [
    symbol,
    { symbol, primary: { symbol: primary, scale, offset } },
  ]),
])

/** The registered unit of the symbol, or undefined. */
export function findUnit(symbol: string): Unit | undefined {
  return UNITS.get(symbol)
}

/** A value in its primary unit; a primary or unregistered unit is unchanged. */
export function toPrimaryUnit(value: number, symbol: string): { value: number; unit: string } {
  const primary = UNITS.get(symbol)?.primary
  return primary === undefined
    ? { value, unit: symbol }
    : { value: value * primary.scale + primary.offset, unit: primary.symbol }
}
