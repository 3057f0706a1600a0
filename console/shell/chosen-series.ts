/** The series that charts show, as the value of a parameter of an address. */

export type ChosenSeries = {
  readonly publisher: string
  readonly name: string
  readonly unit: string
  readonly subtopic: string
}

/** Both signs stay as they are in the query of an address. */
export const BETWEEN_PARTS = '*'
export const BETWEEN_SERIES = ' '
const escaped = (part: string) => encodeURIComponent(part).replaceAll('*', '%2A')

/** The choice of no series is not empty. */
export function formatChoice(series: readonly ChosenSeries[]): string {
  if (series.length === 0) return BETWEEN_SERIES
  return series
    .map(({ publisher, name, unit, subtopic }) => {
      const parts = [publisher, name, unit, subtopic]
      const known = parts.slice(0, parts.findLastIndex((part) => part !== '') + 1)
      return known.map(escaped).join(BETWEEN_PARTS)
    })
    .join(BETWEEN_SERIES)
}
