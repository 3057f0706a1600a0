/** Resolves the fields of a record with the base fields of earlier ones: RFC 8428 section 4. */
import { ServiceError } from '#core/errors/index.ts'
import { nameFault } from './names.ts'
import type { ResolvedRecord } from './record.ts'
import { refusal } from './refusal.ts'
import { absoluteTime, isStorableTime } from './time.ts'

/** The version of RFC 8428, and of a pack without `bver` (section 4.1). Lower ones are accepted, higher ones rejected. */
export const SENML_VERSION = 10

/** Units are short symbols; longer ones are rejected because units are keys of the series dictionary. */
export const MAX_UNIT_LENGTH = 256

/** The base fields after the records that were parsed so far (section 4.1). */
export type Base = {
  name: string
  timeSeconds: number
  unit: string
  value: number | undefined
  sum: number | undefined
  version: number | undefined
}

/** Fields of a resolved record that are copied, apart from adding base value and base sum. */
type SentAsIs = 'value' | 'stringValue' | 'boolValue' | 'dataValue' | 'sum' | 'updateTimeSeconds'

/** The fields of one record, each checked separately; base fields are already in the base. */
export type Fields = Pick<ResolvedRecord, SentAsIs> & {
  name: string
  /** Base name and name together, when they are known to be a valid name. */
  knownName: string | undefined
  unit: string | undefined
  timeSeconds: number
  version: number | undefined
  /** How many of the four kinds of value are set. */
  values: number
  /** The record has only base fields, or no fields, and yields no record. */
  isBaseOnly: boolean
}

export function newBase(): Base {
  return { name: '', timeSeconds: 0, unit: '', value: undefined, sum: undefined, version: undefined }
}

export function noFields(): Fields {
  return {
    name: '',
    knownName: undefined,
    unit: undefined,
    timeSeconds: 0,
    value: undefined,
    stringValue: undefined,
    boolValue: undefined,
    dataValue: undefined,
    sum: undefined,
    updateTimeSeconds: undefined,
    version: undefined,
    values: 0,
    isBaseOnly: true,
  }
}

/** Resolves the record with this index in its pack; undefined for a record with only base fields. Throws `malformed`. */
export function resolveFields(
  fields: Fields,
  base: Base,
  index: number,
  receivedAtSeconds: number,
): ResolvedRecord | undefined {
  // Section 4.4: all records of a pack have the same version; it is given once or repeated.
  if (base.version === undefined) base.version = fields.version ?? SENML_VERSION
  else if (fields.version !== undefined && fields.version !== base.version) {
    throw refusal(`/${index}/bver`, `must be ${base.version} as in the records before it`)
  }
  if (fields.isBaseOnly) return undefined
  const { values } = fields
  if (values > 1) throw refusal(`/${index}`, 'must have one value only: v, vs, vb or vd')

  // Section 4.5.4: when only one of base and field is given, the other counts as zero.
  let { value, sum } = fields
  if (base.value !== undefined && (value !== undefined || values === 0))
    value = finite(base.value + (value ?? 0), index, 'v')
  if (base.sum !== undefined) sum = finite(base.sum + (sum ?? 0), index, 's')
  if (values === 0 && value === undefined && sum === undefined) {
    throw refusal(`/${index}`, 'must have a value (v, vs, vb or vd) or a sum (s)')
  }

  const name = fields.knownName ?? requireName(base.name + fields.name, index)
  const time = absoluteTime(base.timeSeconds + fields.timeSeconds, receivedAtSeconds)
  if (!isStorableTime(time)) throw refusal(`/${index}/t`, 'must lie in the years 1 to 9999 together with the base time')
  return {
    name,
    unit: fields.unit ?? base.unit,
    timeSeconds: time,
    value,
    stringValue: fields.stringValue,
    boolValue: fields.boolValue,
    dataValue: fields.dataValue,
    sum,
    updateTimeSeconds: fields.updateTimeSeconds,
  }
}

/** The limit of one pack: storing more records would block the process for too long. */
const MAX_RECORDS = 10_000

/** Throws `too_large` for more records than one pack may have, including those with only base fields. */
export function requireRecordLimit(count: number): void {
  if (count > MAX_RECORDS) throw new ServiceError('too_large', `the pack must have at most ${MAX_RECORDS} records`)
}

/** The records of a whole pack; a pack without records is invalid. */
export function requireRecords(records: ResolvedRecord[]): ResolvedRecord[] {
  if (records.length === 0) throw refusal('', 'must contain at least one record with a value or a sum')
  return records
}

export function finite(value: number, index: number, label: string): number {
  if (!Number.isFinite(value)) throw refusal(`/${index}/${label}`, 'must be a finite double')
  return value
}

function requireName(name: string, index: number): string {
  const fault = nameFault(name)
  if (fault !== undefined) throw refusal(`/${index}/n`, fault)
  return name
}
