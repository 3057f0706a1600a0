/** Parses sizes with units. */

const SIZE = /^(\d{1,15}) ?(|[KMG]i?)B?$/i
const UNITS: Readonly<Record<string, number>> = {
  '': 1,
  K: 1e3,
  M: 1e6,
  G: 1e9,
  KI: 1024,
  MI: 1024 ** 2,
  GI: 1024 ** 3,
}

/** The bytes of `1048576`, `64 MiB`, `64Mi` or `2GB`; undefined for any other form. */
export function parseSize(text: string): number | undefined {
  const match = SIZE.exec(text.trim())
  if (match === null) return undefined
  const size = Number(match[1]) * (UNITS[(match[2] ?? '').toUpperCase()] ?? NaN)
  return Number.isSafeInteger(size) ? size : undefined
}
