/** From the values of a pack to resolved records: the rules of RFC 8428 section 4 in one pass. */
import { parseBase64Url } from './base64url.ts'
import { MAX_NAME_LENGTH, nameFault } from './names.ts'
import type { ResolvedRecord } from './record.ts'
import { refusal } from './refusal.ts'
import { absoluteTime, isStorableTime } from './time.ts'

/** The version of RFC 8428, and what a pack without `bver` has (section 4.1). Lower ones are read, higher ones refused. */
export const SENML_VERSION = 10

/** Units are short symbols; longer ones are refused because units are keys of the series dictionary. */
export const MAX_UNIT_LENGTH = 256

type Base = {
  name: string
  timeSeconds: number
  unit: string
  value: number | undefined
  sum: number | undefined
  version: number | undefined
}

/**
 * Resolves a SenML pack into self-contained records (RFC 8428 section 4.6).
 * Base fields apply to the record that carries them and to all later ones until replaced (section 4.1). Times are
 * seconds; below 2^28 they are relative to `receivedAtSeconds` (section 4.5.3). A record of base fields alone yields
 * nothing. Keeps the input order, which is what the reader shows for equal times.
 * Throws `malformed`, naming record and field, for what RFC 8428 forbids and for what could not be stored unaltered:
 * numbers outside the range of a double, times outside the years 1 to 9999, NUL characters and lone surrogates.
 */
export function resolvePack(pack: unknown, receivedAtSeconds: number): ResolvedRecord[] {
  if (!Array.isArray(pack)) throw refusal('', 'must be an array of records')
  const base: Base = { name: '', timeSeconds: 0, unit: '', value: undefined, sum: undefined, version: undefined }
  const records: ResolvedRecord[] = []
  for (let index = 0; index < pack.length; index++) {
    const record = resolveRecord(pack[index], index, base, receivedAtSeconds)
    if (record !== undefined) records.push(record)
  }
  if (records.length === 0) throw refusal('', 'must hold at least one record with a value or a sum')
  return records
}

/** Applies one record to the base and resolves it; undefined for a record of base fields alone. */
function resolveRecord(
  source: unknown,
  index: number,
  base: Base,
  receivedAtSeconds: number,
): ResolvedRecord | undefined {
  if (typeof source !== 'object' || source === null || Array.isArray(source)) {
    throw refusal(`/${index}`, 'must be an object')
  }
  const fields = source as Record<string, unknown>
  let version = SENML_VERSION
  let isBaseOnly = true
  let values = 0
  let name = ''
  let unit: string | undefined
  let timeSeconds = 0
  let value: number | undefined
  let stringValue: string | undefined
  let boolValue: boolean | undefined
  let dataValue: Uint8Array | undefined
  let sum: number | undefined
  let updateTimeSeconds: number | undefined

  for (const label in fields) {
    const field = fields[label]
    switch (label) {
      case 'bn':
        base.name = text(field, index, label)
        // Checked here although a later record may never use it: the next one would be blamed for it.
        if (base.name.length > MAX_NAME_LENGTH)
          throw refusal(`/${index}/bn`, `must not exceed ${MAX_NAME_LENGTH} characters`)
        continue
      case 'bt':
        base.timeSeconds = number(field, index, label)
        continue
      case 'bu':
        base.unit = unitText(field, index, label)
        continue
      case 'bv':
        base.value = number(field, index, label)
        continue
      case 'bs':
        base.sum = number(field, index, label)
        continue
      case 'bver':
        version = readVersion(field, index)
        continue
      case 'n':
        name = text(field, index, label)
        break
      case 'u':
        unit = unitText(field, index, label)
        break
      case 'v':
        value = number(field, index, label)
        values++
        break
      case 'vs':
        stringValue = text(field, index, label)
        values++
        break
      case 'vb':
        if (typeof field !== 'boolean') throw refusal(`/${index}/vb`, 'must be a boolean')
        boolValue = field
        values++
        break
      case 'vd':
        dataValue = data(field, index)
        values++
        break
      case 's':
        sum = number(field, index, label)
        break
      case 't':
        timeSeconds = number(field, index, label)
        break
      case 'ut':
        updateTimeSeconds = number(field, index, label)
        break
      case 'l':
        text(field, index, label)
        break
      default:
        // Section 4.4: unknown fields are ignored, unless their label says that they must be understood.
        if (label.endsWith('_')) throw refusal(`/${index}/${label}`, 'is a mandatory extension that is not understood')
        continue
    }
    isBaseOnly = false
  }

  // Section 4.4: all records of a pack have the same version; it is given once or repeated.
  if (base.version === undefined) base.version = version
  else if (fields['bver'] !== undefined && version !== base.version) {
    throw refusal(`/${index}/bver`, `must be ${base.version} as in the records before it`)
  }
  if (isBaseOnly) return undefined
  if (values > 1) throw refusal(`/${index}`, 'must have one value only: v, vs, vb or vd')

  // Section 4.5.4: where only one of base and field is given, the other counts as zero.
  if (base.value !== undefined && (value !== undefined || values === 0))
    value = finite(base.value + (value ?? 0), index, 'v')
  if (base.sum !== undefined) sum = finite(base.sum + (sum ?? 0), index, 's')
  if (values === 0 && value === undefined && sum === undefined) {
    throw refusal(`/${index}`, 'must have a value (v, vs, vb or vd) or a sum (s)')
  }

  const fullName = base.name + name
  const fault = nameFault(fullName)
  if (fault !== undefined) throw refusal(`/${index}/n`, fault)
  const time = absoluteTime(base.timeSeconds + timeSeconds, receivedAtSeconds)
  if (!isStorableTime(time)) throw refusal(`/${index}/t`, 'must lie in the years 1 to 9999 together with the base time')
  return {
    name: fullName,
    unit: unit ?? base.unit,
    timeSeconds: time,
    value,
    stringValue,
    boolValue,
    dataValue,
    sum,
    updateTimeSeconds,
  }
}

function number(field: unknown, index: number, label: string): number {
  if (typeof field !== 'number') throw refusal(`/${index}/${label}`, 'must be a number')
  return finite(field, index, label)
}

function finite(value: number, index: number, label: string): number {
  if (!Number.isFinite(value)) throw refusal(`/${index}/${label}`, 'must be a number that a double can hold')
  return value
}

function text(field: unknown, index: number, label: string): string {
  if (typeof field !== 'string') throw refusal(`/${index}/${label}`, 'must be a string')
  if (field.includes('\0')) throw refusal(`/${index}/${label}`, 'must not hold a NUL character')
  if (!field.isWellFormed()) throw refusal(`/${index}/${label}`, 'must not hold a lone surrogate')
  return field
}

function unitText(field: unknown, index: number, label: string): string {
  const unit = text(field, index, label)
  if (unit.length > MAX_UNIT_LENGTH)
    throw refusal(`/${index}/${label}`, `must not exceed ${MAX_UNIT_LENGTH} characters`)
  return unit
}

/** CBOR carries bytes, JSON carries base64url. */
function data(field: unknown, index: number): Uint8Array {
  if (field instanceof Uint8Array) return field
  const bytes = typeof field === 'string' ? parseBase64Url(field) : undefined
  if (bytes === undefined)
    throw refusal(`/${index}/vd`, 'must be base64 with the URL-safe alphabet and without padding')
  return bytes
}

function readVersion(field: unknown, index: number): number {
  if (typeof field !== 'number' || !Number.isInteger(field) || field < 1) {
    throw refusal(`/${index}/bver`, 'must be a positive integer')
  }
  if (field > SENML_VERSION) throw refusal(`/${index}/bver`, `must not exceed ${SENML_VERSION}`)
  return field
}
