/** Finds the known name nearest to a misspelt one. Bounded: a name of any length or form costs microseconds. */

/** Longer names are not compared. */
const MAX_NAME_CHARS = 64

/** `maxRetries`, `max-retries` and `max_retries` are the same name. */
const fold = (name: string) => name.toLowerCase().replaceAll(/[_-]/g, '')

/** The number of tolerated errors: none in a name of two letters, one in `limt`, two in `desciptoin`. */
const toleranceOf = (length: number) => (length <= 2 ? 0 : length <= 5 ? 1 : 2)

/** The nearest known name, the first of equally near ones; undefined when none is near. */
export function nearestName(name: string, known: Iterable<string>): string | undefined {
  if (name.length > MAX_NAME_CHARS) return undefined
  const wanted = fold(name)
  let best: string | undefined
  let most = toleranceOf(wanted.length)
  for (const candidate of known) {
    const steps = distanceWithin(wanted, fold(candidate), most)
    if (steps === undefined) continue
    best = candidate
    if (steps === 0) return best
    most = steps - 1
  }
  return best
}

/**
 * The Damerau–Levenshtein distance: letters to insert, delete, replace or swap with the next one; undefined above `most`. Only
 * cells within `most` of the diagonal are computed.
 */
function distanceWithin(one: string, other: string, most: number): number | undefined {
  if (Math.abs(one.length - other.length) > most) return undefined
  if (one === other) return 0
  const beyond = most + 1
  const width = other.length + 1
  let before = new Uint8Array(width).fill(beyond)
  let above = Uint8Array.from({ length: width }, (_, index) => Math.min(index, beyond))
  let current = new Uint8Array(width)
  for (let row = 1; row <= one.length; row++) {
    current.fill(beyond)
    current[0] = Math.min(row, beyond)
    let least = current[0]
    for (let column = Math.max(1, row - most); column <= Math.min(other.length, row + most); column++) {
      const isSame = one[row - 1] === other[column - 1]
      const isSwapped =
        row > 1 && column > 1 && one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1]
      const steps = Math.min(
        (above[column] as number) + 1,
        (current[column - 1] as number) + 1,
        (above[column - 1] as number) + (isSame ? 0 : 1),
        isSwapped ? (before[column - 2] as number) + 1 : beyond,
      )
      current[column] = steps
      least = Math.min(least, steps)
    }
    if (least > most) return undefined
    ;[before, above, current] = [above, current, before]
  }
  const steps = above[other.length] as number
  return steps > most ? undefined : steps
}
