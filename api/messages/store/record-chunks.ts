/**
 * Chunks: records of one message that are stored in one row. Their times lie in the same quarter of an hour, so that a row
 * belongs to one bucket of the rollups, and a range of times is a range of rows except at its two ends.
 */
import type { ResolvedRecord } from '../senml/index.ts'

/** Length of a bucket of times. Stored chunks were made with it. */
export const BUCKET_SECONDS = 900
/** Records of a row: three arrays of so many stay below the 2 kB from which PostgreSQL compresses a row. */
const MAX_CHUNK_RECORDS = 64

export type RecordChunk = {
  records: readonly ResolvedRecord[]
  seriesKeys: readonly number[]
  minSeconds: number
  maxSeconds: number
}

/** The chunks of a message, in the order of their first records; the records of each in the order in which they were sent. */
export function chunksOf(records: readonly ResolvedRecord[], seriesKeys: readonly number[]): RecordChunk[] {
  const whole = asChunk(records, seriesKeys)
  if (records.length <= MAX_CHUNK_RECORDS && bucketOf(whole.minSeconds) === bucketOf(whole.maxSeconds)) return [whole]
  const chunks: RecordChunk[] = []
  for (const places of placesByBucket(records)) {
    for (let start = 0; start < places.length; start += MAX_CHUNK_RECORDS) {
      const part = places.slice(start, start + MAX_CHUNK_RECORDS)
      chunks.push(
        asChunk(
          part.map((place) => records[place] as ResolvedRecord),
          part.map((place) => seriesKeys[place] as number),
        ),
      )
    }
  }
  return chunks
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

function asChunk(records: readonly ResolvedRecord[], seriesKeys: readonly number[]): RecordChunk {
  let minSeconds = Infinity
  let maxSeconds = -Infinity
  for (const { timeSeconds } of records) {
    if (timeSeconds < minSeconds) minSeconds = timeSeconds
    if (timeSeconds > maxSeconds) maxSeconds = timeSeconds
  }
  return { records, seriesKeys, minSeconds, maxSeconds }
}

/** Returns the bucket of the time as it is stored, rounded to microseconds: a time may be rounded up into the next bucket. */
function bucketOf(timeSeconds: number): number {
  const wholeSeconds = Math.floor(timeSeconds)
  const isRoundedUp = Math.round((timeSeconds - wholeSeconds) * 1e6) === 1e6
  return Math.floor((isRoundedUp ? wholeSeconds + 1 : wholeSeconds) / BUCKET_SECONDS)
}
