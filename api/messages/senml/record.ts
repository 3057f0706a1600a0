/** A record of a resolved SenML pack. Each measurement is one self-contained record (RFC 8428 section 4.6). */

export type ResolvedRecord = {
  /** Base name and name joined; a valid SenML name. */
  name: string
  /** The record's unit, otherwise the base unit, otherwise the empty string. */
  unit: string
  /** Absolute seconds since 1970 in UTC, leap seconds excluded. */
  timeSeconds: number
  /** At most one of the four kinds of value is set; none in a record with only a sum. */
  value: number | undefined
  stringValue: string | undefined
  boolValue: boolean | undefined
  dataValue: Uint8Array | undefined
  sum: number | undefined
  /** The longest time in seconds until the sensor reports again. */
  updateTimeSeconds: number | undefined
}
