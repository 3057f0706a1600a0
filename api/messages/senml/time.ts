/** SenML times (RFC 8428 section 4.5.3) and the years that can be stored. */

/** Times below 2^28 seconds are relative to the moment of reception. */
export const RELATIVE_TIME_LIMIT_SECONDS = 268_435_456

/** 0001-01-01T00:00:00Z and 10000-01-01T00:00:00Z: what RFC 3339 can write with four digits of year. */
export const MIN_TIME_SECONDS = -62_135_596_800
export const END_TIME_SECONDS = 253_402_300_800

/** The absolute time of a record whose base time and time add up to `seconds`. */
export function absoluteTime(seconds: number, receivedAtSeconds: number): number {
  return seconds < RELATIVE_TIME_LIMIT_SECONDS ? receivedAtSeconds + seconds : seconds
}

/** True for a time in the years 1 to 9999; false for NaN and infinities. */
export function isStorableTime(seconds: number): boolean {
  return seconds >= MIN_TIME_SECONDS && seconds < END_TIME_SECONDS
}
