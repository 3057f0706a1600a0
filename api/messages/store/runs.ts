/**
 * Runs: records of one message that are stored in one row. Their times lie in the same quarter of an hour, so that a row
 * belongs to one bucket of every projection, and so that a range of times is a range of rows but for its two ends.
 */
import type { ResolvedRecord } from '../senml/index.ts'

/** Length of a bucket of times. Runs that are stored already were made with it. */
export const BUCKET_SECONDS = 900
/** Records of a row: three arrays of so many stay below the 2 kB from which PostgreSQL compresses a row. */
const MAX_RUN_RECORDS = 64

export type Run = {
  records: readonly ResolvedRecord[]
  seriesKeys: readonly number[]
  minSeconds: number
  maxSeconds: number
}

/** The runs of a message, in the order of their first records; the records of each in the order in which they were sent. */
export function runsOf(records: readonly ResolvedRecord[], seriesKeys: readonly number[]): Run[] {
  const whole = asRun(records, seriesKeys)
  if (records.length <= MAX_RUN_RECORDS && bucketOf(whole.minSeconds) === bucketOf(whole.maxSeconds)) return [whole]
  const runs: Run[] = []
  for (const places of placesByBucket(records)) {
    for (let start = 0; start < places.length; start += MAX_RUN_RECORDS) {
      const part = places.slice(start, start + MAX_RUN_RECORDS)
      runs.push(
        asRun(
          part.map((place) => records[place] as ResolvedRecord),
          part.map((place) => seriesKeys[place] as number),
        ),
      )
    }
  }
  return runs
}

function placesByBucket(records: readonly ResolvedRecord[]): Iterable<number[]> {
  const buckets = new Map<number, number[]>()
  records.forEach(({ timeSeconds }, place) => {
    const bucket = bucketOf(timeSeconds)
    const places = buckets.get(bucket)
    if (places === undefined) buckets.set(bucket, [place])
    else places.push(place)
  })
  return buckets.values()
}

function asRun(records: readonly ResolvedRecord[], seriesKeys: readonly number[]): Run {
  let minSeconds = Infinity
  let maxSeconds = -Infinity
  for (const { timeSeconds } of records) {
    if (timeSeconds < minSeconds) minSeconds = timeSeconds
    if (timeSeconds > maxSeconds) maxSeconds = timeSeconds
  }
  return { records, seriesKeys, minSeconds, maxSeconds }
}

/** Of the time as it is stored, rounded to microseconds: a time may be rounded up into the next bucket. */
function bucketOf(timeSeconds: number): number {
  const wholeSeconds = Math.floor(timeSeconds)
  const isRoundedUp = Math.round((timeSeconds - wholeSeconds) * 1e6) === 1e6
  return Math.floor((isRoundedUp ? wholeSeconds + 1 : wholeSeconds) / BUCKET_SECONDS)
}
