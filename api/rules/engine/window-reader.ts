/** What an expression asks of the series around a record, and what answers it. */

/** `delta` is the newest value less the oldest, `rate` the same for each second between them. */
export type WindowFunction = 'mean' | 'min' | 'max' | 'count' | 'delta' | 'rate' | 'last'

export type WindowRequest = {
  function: WindowFunction
  /** The name of another series of the same client, channel and subtopic; undefined for the series of the record. */
  series: string | undefined
  /** Undefined for `last`, which is the newest value of at most `MAX_WINDOW_MS`. */
  durationMs: number | undefined
}

/** Answers requests for one record. Undefined: the window has too few values. */
export type WindowReader = {
  read(request: WindowRequest): number | undefined
}

export const MAX_WINDOW_MS = 24 * 3_600_000
