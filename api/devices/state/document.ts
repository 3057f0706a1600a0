/**
 * Documents of a device: JSON merge patch (RFC 7396), the difference between what is desired and what is reported, and the limits of both.
 * Pure.
 */
import { isExactInteger } from '#core/exact-integers.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { storedBytes } from '#core/stored-json.ts'

export type Json = null | boolean | number | string | object
export type JsonObject = Readonly<Record<string, unknown>>

/** Limits `desired` and `reported` each, as they are stored: `1e308` has 309 digits. */
export const MAX_DOCUMENT_BYTES = 64 * 1024
/** Named documents of one client. */
export const MAX_NAMES = 32
/** The document itself is the first level. */
export const MAX_DOCUMENT_LEVELS = 20

/** An object with fields. An integer above 2^53 is an object of the parser, and no object of the document. */
function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactInteger(value)
}

const own = (of: JsonObject, name: string): unknown => (Object.hasOwn(of, name) ? of[name] : undefined)

/** Throws `malformed` unless it is an object. */
export function requireObject(value: unknown): JsonObject {
  if (!isObject(value)) throw new ServiceError('malformed', 'the body must be a JSON object')
  return value
}

/** RFC 7396 section 2: a field that is null is removed, objects are merged, everything else replaces. */
export function mergePatch(target: unknown, patch: JsonObject): JsonObject {
  const merged = new Map(isObject(target) ? Object.entries(target) : [])
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) merged.delete(name)
    else merged.set(name, isObject(value) ? mergePatch(merged.get(name), value) : value)
  }
  return Object.fromEntries(merged)
}

/** The part of `desired` that `reported` does not equal. Further fields of `reported` do not matter. */
export function differenceOf(desired: JsonObject, reported: JsonObject): JsonObject {
  const found: [string, unknown][] = []
  for (const [name, value] of Object.entries(desired)) {
    const other = own(reported, name)
    if (isObject(value) && isObject(other)) {
      const inner = differenceOf(value, other)
      if (Object.keys(inner).length > 0) found.push([name, inner])
    } else if (!isSame(value, other)) found.push([name, value])
  }
  return Object.fromEntries(found)
}

/** Whether both are the same JSON. */
export function isSame(one: unknown, other: unknown): boolean {
  if (one === other) return true
  if (isExactInteger(one) || isExactInteger(other))
    return digitsOf(one) !== undefined && digitsOf(one) === digitsOf(other)
  if (Array.isArray(one))
    return (
      Array.isArray(other) && one.length === other.length && one.every((value, index) => isSame(value, other[index]))
    )
  if (!isObject(one) || !isObject(other)) return false
  const names = Object.keys(one)
  return (
    names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && isSame(one[name], other[name]))
  )
}

/** The decimal digits of an integer. PostgreSQL writes 1e21 as digits, which are then above 2^53; undefined for everything else. */
function digitsOf(value: unknown): string | undefined {
  if (isExactInteger(value)) return JSON.stringify(value)
  if (typeof value !== 'number') return undefined
  const parts = /^(-?)(\d)(?:\.(\d+))?e\+(\d+)$/.exec(String(value))
  if (parts === null) return Number.isInteger(value) ? String(value) : undefined
  const [, sign, first, rest = '', exponent] = parts
  return `${sign}${first}${rest.padEnd(Number(exponent), '0')}`
}

/** Throws `too_large`, and `malformed` with the path of the level that is too deep. `what` names the part of the document. */
export function requireWithinLimits(document: JsonObject, what: 'desired' | 'reported'): void {
  const tooDeep = deepPath(document, 1)
  if (tooDeep !== undefined)
    throw refusedField(`/${what}${tooDeep}`, `must not be nested deeper than ${MAX_DOCUMENT_LEVELS} levels`)
  const bytes = storedBytes(document)
  if (bytes > MAX_DOCUMENT_BYTES)
    throw new ServiceError('too_large', `${what} is limited to ${MAX_DOCUMENT_BYTES} bytes of JSON: got ${bytes}`)
}

/** The path of the first value below the last level. Undefined: the document is within the limit. */
function deepPath(value: unknown, level: number): string | undefined {
  if (typeof value !== 'object' || value === null || isExactInteger(value)) return undefined
  if (level > MAX_DOCUMENT_LEVELS) return ''
  for (const [name, inner] of Object.entries(value)) {
    const found = deepPath(inner, level + 1)
    if (found !== undefined) return `/${name}${found}`
  }
  return undefined
}

export const isEmpty = (document: JsonObject): boolean => Object.keys(document).length === 0

/** Whether everything of `part` is in `whole` with the same value: a difference that only became smaller. */
export const isPartOf = (part: JsonObject, whole: JsonObject): boolean => isEmpty(differenceOf(part, whole))

/** 1 to 64 characters. `$`, `/` and the wildcards of MQTT are none of them. */
const NAME = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,63})$/

export const isName = (text: string): boolean => NAME.test(text)

/** The name of a document; empty: the one without a name. Throws `malformed`. */
export function parseName(name: string | undefined): string {
  if (name === undefined) return ''
  if (!isName(name))
    throw refusedField(
      'name',
      'must have 1 to 64 letters, digits, dots, underscores or hyphens, and begin with a letter or digit',
    )
  return name
}
