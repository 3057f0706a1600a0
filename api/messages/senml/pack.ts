/** Resolves the JSON values of a pack to records: the labels of RFC 8428 section 4 and their rules. */
import { parseBase64Url } from './base64url.ts'
import { MAX_NAME_LENGTH } from './names.ts'
import type { ResolvedRecord } from './record.ts'
import { refusal } from './refusal.ts'
import type { Base, Fields } from './resolution.ts'
import {
  MAX_UNIT_LENGTH,
  SENML_VERSION,
  finite,
  newBase,
  noFields,
  requireRecordLimit,
  requireRecords,
  resolveFields,
} from './resolution.ts'

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
  requireRecordLimit(pack.length)
  const base = newBase()
  const records: ResolvedRecord[] = []
  for (let index = 0; index < pack.length; index++) {
    const record = resolveFields(readFields(pack[index], index, base), base, index, receivedAtSeconds)
    if (record !== undefined) records.push(record)
  }
  return requireRecords(records)
}

/** Reads one record; its base fields go into the base. */
function readFields(source: unknown, index: number, base: Base): Fields {
  if (typeof source !== 'object' || source === null || Array.isArray(source)) {
    throw refusal(`/${index}`, 'must be an object')
  }
  const record = source as Record<string, unknown>
  const fields = noFields()
  for (const label in record) {
    const field = record[label]
    switch (label) {
      case 'bn':
        base.name = text(field, index, label)
        // Checked here, because a later record would be reported instead.
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
        fields.version = readVersion(field, index)
        continue
      case 'n':
        fields.name = text(field, index, label)
        break
      case 'u':
        fields.unit = unitText(field, index, label)
        break
      case 'v':
        fields.value = number(field, index, label)
        fields.values++
        break
      case 'vs':
        fields.stringValue = text(field, index, label)
        fields.values++
        break
      case 'vb':
        if (typeof field !== 'boolean') throw refusal(`/${index}/vb`, 'must be a boolean')
        fields.boolValue = field
        fields.values++
        break
      case 'vd':
        fields.dataValue = data(field, index)
        fields.values++
        break
      case 's':
        fields.sum = number(field, index, label)
        break
      case 't':
        fields.timeSeconds = number(field, index, label)
        break
      case 'ut':
        fields.updateTimeSeconds = number(field, index, label)
        break
      case 'l':
        text(field, index, label)
        break
      default:
        // Section 4.4: unknown fields are ignored, unless their label requires that they are understood.
        if (label.endsWith('_')) throw refusal(`/${index}/${label}`, 'is a mandatory extension that is not supported')
        continue
    }
    fields.isBaseOnly = false
  }
  return fields
}

function number(field: unknown, index: number, label: string): number {
  if (typeof field !== 'number') throw refusal(`/${index}/${label}`, 'must be a number')
  return finite(field, index, label)
}

function text(field: unknown, index: number, label: string): string {
  if (typeof field !== 'string') throw refusal(`/${index}/${label}`, 'must be a string')
  if (field.includes('\0')) throw refusal(`/${index}/${label}`, 'must not contain a NUL character')
  if (!field.isWellFormed()) throw refusal(`/${index}/${label}`, 'must not contain a lone surrogate')
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
