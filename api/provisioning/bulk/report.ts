/** The report of all errors of a file by line, so that they can be fixed together. */
import { ServiceError } from '#core/errors/index.ts'
import type { ErrorDetail, ErrorKind } from '#core/errors/index.ts'

/** Maximum number of errors in the details. The message contains the total. */
const MAX_REPORTED = 1000

/** The kind of the whole error is the first of these among the kinds of the lines. */
const ORDER: readonly ErrorKind[] = ['malformed', 'forbidden', 'conflict', 'unprocessable']

export type Report = {
  /** `place`: `line 7` of CSV or `item 7` of JSON. */
  refuse(kind: ErrorKind, place: string, message: string): void
  /** Throws when the report contains an error. */
  requireNothing(): void
}

/** The number of `line 7` or `item 7`. */
const numberOf = (place: string) => Number(/\d+/.exec(place)?.[0] ?? 0)

export function createReport(): Report {
  const refusals: (ErrorDetail & { kind: ErrorKind })[] = []
  let count = 0
  return {
    refuse(kind, place, message) {
      count++
      if (refusals.length < MAX_REPORTED) refusals.push({ kind, path: place, message })
    },
    requireNothing() {
      if (count === 0) return
      const kind = ORDER.find((one) => refusals.some((refusal) => refusal.kind === one)) ?? 'malformed'
      // Stable: the errors of a line keep their order.
      refusals.sort((one, other) => numberOf(one.path) - numberOf(other.path))
      const [first] = refusals
      const errors = count === 1 ? '1 error' : `${count} errors`
      const message = `nothing was created: the file has ${errors}: ${first?.path} ${first?.message}`
      throw new ServiceError(kind, message, {
        details: refusals.map(({ path, message: text }) => ({ path, message: text })),
      })
    },
  }
}
