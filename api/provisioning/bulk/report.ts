/** What is wrong with a file, line by line, so that whoever wrote it mends all of it at once. */
import { ServiceError } from '#core/errors/index.ts'
import type { ErrorDetail, ErrorKind } from '#core/errors/index.ts'

/** A report of more says how many there are. */
const MAX_REPORTED = 1000

/** Of the kinds that lines are refused with, the first of these is that of the whole. */
const ORDER: readonly ErrorKind[] = ['malformed', 'forbidden', 'conflict', 'unprocessable']

export type Report = {
  /** `place`: `line 7` of CSV, `item 7` of JSON. */
  refuse(kind: ErrorKind, place: string, message: string): void
  /** Throws when anything was refused. */
  requireNothing(): void
}

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
      const [first] = refusals
      const places = count === 1 ? 'one place' : `${count} places`
      const message = `nothing was made, the file is wrong in ${places}: ${first?.path} ${first?.message}`
      throw new ServiceError(kind, message, {
        details: refusals.map(({ path, message: text }) => ({ path, message: text })),
      })
    },
  }
}
