/** Ranges of the times of messages. */

/** The times are in epoch seconds. The end is exclusive. */
export type TimeRange = { fromSeconds: number | undefined; toSeconds: number | undefined }

export const ALL_TIMES: TimeRange = { fromSeconds: undefined, toSeconds: undefined }

/** The intersection of both ranges. */
export function intersection(one: TimeRange, other: TimeRange): TimeRange {
  const [from, to] = [
    Math.max(one.fromSeconds ?? -Infinity, other.fromSeconds ?? -Infinity),
    Math.min(one.toSeconds ?? Infinity, other.toSeconds ?? Infinity),
  ]
  return { fromSeconds: from === -Infinity ? undefined : from, toSeconds: to === Infinity ? undefined : to }
}
