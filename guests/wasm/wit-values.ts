/**
 * Values of component functions as JSON. A record is an object with the names of the type, tuples and lists are arrays, an option is
 * the value or null, a result `{"ok": v}` or `{"err": v}`, a variant `{"case": v}` or `"case"`, an enum its name, flags an array of
 * names; a list of `u8` an array or `{"base64": text}`; 64-bit integers are decimal text beyond 2^53. They are converted to the JavaScript values of jco: camel-case names, bigint
 * for 64-bit integers, `{tag, val}` for variants.
 */
import { parseBase64 } from '#core/bytes/index.ts'
import { parseNumber, presentResult } from './numbers.ts'
import type { WitType } from './wit-types.ts'

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json }

/** A value that does not match its type; the message names the path and what is accepted. */
export class ValueRefusal extends Error {}

/** True when JSON can represent every value of the type. Nested options are ambiguous. */
export function isJsonType(type: WitType): boolean {
  switch (type.kind) {
    case 'resource':
      return false
    case 'list':
      return isJsonType(type.item)
    case 'option':
      return type.item.kind !== 'option' && isJsonType(type.item)
    case 'tuple':
      return type.items.every(isJsonType)
    case 'result':
      return [type.ok, type.err].every((part) => part === undefined || isJsonType(part))
    case 'record':
      return type.fields.every(([, field]) => isJsonType(field))
    case 'variant':
      return type.cases.every(([, payload]) => payload === undefined || isJsonType(payload))
    default:
      return true
  }
}

const INTEGER_BITS: Partial<Record<WitType['kind'], [signed: boolean, bits: bigint]>> = {
  s8: [true, 8n],
  u8: [false, 8n],
  s16: [true, 16n],
  u16: [false, 16n],
  s32: [true, 32n],
  u32: [false, 32n],
  s64: [true, 64n],
  u64: [false, 64n],
}

/** `at` is the path of the value for messages. Throws ValueRefusal. */
export function toComponentValue(json: Json, type: WitType, at: string): unknown {
  const refuse = (accepted: string): never => {
    throw new ValueRefusal(`${at} must be ${accepted}`)
  }
  switch (type.kind) {
    case 'bool':
      return typeof json === 'boolean' ? json : refuse('true or false')
    case 'f32':
    case 'f64':
      return parseNumber(json, type.kind) ?? refuse(`a number within the range of ${type.kind}`)
    case 'char':
      return isText(json) && Array.from(json).length === 1 ? json : refuse('text of one character')
    case 'string':
      return isText(json) ? json : refuse('text')
    case 'list': {
      if (type.item.kind === 'u8' && isBase64(json)) {
        return new Uint8Array(parseBase64(json.base64) ?? refuse('{"base64": text in base64}'))
      }
      if (!Array.isArray(json)) return refuse(type.item.kind === 'u8' ? 'an array or {"base64": text}' : 'an array')
      const items = json.map((item, index) => toComponentValue(item, type.item, `${at}[${index}]`))
      return type.item.kind === 'u8' ? Uint8Array.from(items as number[]) : items
    }
    case 'option':
      return json === null ? undefined : toComponentValue(json, type.item, at)
    case 'tuple': {
      if (!Array.isArray(json) || json.length !== type.items.length) return refuse(`an array of ${type.items.length}`)
      return type.items.map((item, index) => toComponentValue(json[index] as Json, item, `${at}[${index}]`))
    }
    case 'record':
      return toRecord(json, type.fields, at)
    case 'enum':
      return typeof json === 'string' && type.names.includes(json) ? json : refuse(`one of ${type.names.join(', ')}`)
    case 'flags': {
      const isKnown = (name: Json) => typeof name === 'string' && type.names.includes(name)
      if (!Array.isArray(json) || !json.every(isKnown) || new Set(json).size < json.length) {
        return refuse(`an array of ${type.names.join(', ')}, each at most once`)
      }
      return Object.fromEntries(type.names.map((name) => [camelCase(name), json.includes(name)]))
    }
    case 'variant':
      return toVariant(json, type.cases, at)
    case 'result':
      return toVariant(
        json,
        [
          ['ok', type.ok],
          ['err', type.err],
        ],
        at,
      )
    case 'resource':
      return refuse('a resource, which JSON cannot give')
    default:
      return toInteger(json, type.kind) ?? refuse(describeInteger(type.kind))
  }
}

/** How a list of `u8` is given as JSON. */
export type BytesForm = 'array' | 'base64'

/** The inverse. The value is not checked, because the component returns values of its type. */
export function fromComponentValue(value: unknown, type: WitType, bytes: BytesForm = 'array'): Json {
  switch (type.kind) {
    case 'bool':
    case 'char':
    case 'string':
    case 'enum':
      return value as Json
    case 'list':
      if (type.item.kind === 'u8' && bytes === 'base64') {
        return { base64: Uint8Array.from(value as ArrayLike<number>).toBase64() }
      }
      return Array.from(value as ArrayLike<unknown>, (item) => fromComponentValue(item, type.item, bytes))
    case 'option':
      return value === undefined || value === null ? null : fromComponentValue(value, type.item, bytes)
    case 'tuple':
      return type.items.map((item, index) => fromComponentValue((value as unknown[])[index], item, bytes))
    case 'record': {
      const record = value as Record<string, unknown>
      return Object.fromEntries(
        type.fields.map(([name, field]) => [name, fromComponentValue(record[camelCase(name)], field, bytes)]),
      )
    }
    case 'flags': {
      const flags = value as Record<string, boolean>
      return type.names.filter((name) => flags[camelCase(name)])
    }
    case 'variant':
    case 'result': {
      const { tag, val } = value as { tag: string; val: unknown }
      const payload =
        type.kind === 'result' ? type[tag as 'ok' | 'err'] : type.cases.find(([name]) => name === tag)?.[1]
      if (type.kind === 'variant' && payload === undefined) return tag
      return { [tag]: payload === undefined ? null : fromComponentValue(val, payload, bytes) }
    }
    case 'resource':
      return null
    case 'u64':
      return presentResult(BigInt.asUintN(64, value as bigint))
    default:
      return presentResult(value)
  }
}

/** `get-value` → `getValue`, the names of functions and fields in jco. */
export function camelCase(name: string): string {
  const [first = '', ...rest] = name.split('-').map((word) => word.toLowerCase())
  return first + rest.map((word) => word.slice(0, 1).toUpperCase() + word.slice(1)).join('')
}

/** An object with nothing but `base64`. */
function isBase64(json: Json): json is { base64: string } {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) return false
  return typeof json['base64'] === 'string' && Object.keys(json).length === 1
}

/** Text without lone surrogates, which components do not accept. */
function isText(json: Json): json is string {
  return typeof json === 'string' && json.isWellFormed()
}

function toInteger(json: Json, kind: WitType['kind']): number | bigint | undefined {
  const [isSigned, bits] = INTEGER_BITS[kind] ?? [true, 0n]
  const value = parseNumber(json, 'i64')
  if (typeof value !== 'bigint') return undefined
  const min = isSigned ? -(2n ** (bits - 1n)) : 0n
  const max = isSigned ? 2n ** (bits - 1n) - 1n : 2n ** bits - 1n
  if (value < min || value > max) return undefined
  return bits === 64n ? value : Number(value)
}

function describeInteger(kind: WitType['kind']): string {
  const text = kind === 's64' || kind === 'u64' ? ', as decimal text beyond 2^53' : ''
  return `an integer within the range of ${kind}${text}`
}

function toRecord(json: Json, fields: [string, WitType][], at: string): Record<string, unknown> {
  const names = fields.map(([name]) => name)
  if (typeof json !== 'object' || json === null || Array.isArray(json)) {
    throw new ValueRefusal(`${at} must be an object with ${names.join(', ')}`)
  }
  const unknown = Object.keys(json).find((name) => !names.includes(name))
  if (unknown !== undefined)
    throw new ValueRefusal(`${at} has ${JSON.stringify(unknown.slice(0, 100))}, accepted are ${names.join(', ')}`)
  return Object.fromEntries(
    fields.map(([name, type]) => {
      const value = Object.hasOwn(json, name) ? json[name] : undefined
      if (value === undefined && type.kind !== 'option') throw new ValueRefusal(`${at} lacks ${name}`)
      return [camelCase(name), toComponentValue(value ?? null, type, `${at}.${name}`)]
    }),
  )
}

function toVariant(json: Json, cases: [string, WitType | undefined][], at: string): { tag: string; val?: unknown } {
  const isObject = typeof json === 'object' && json !== null && !Array.isArray(json)
  const [tag, payload = null] = isObject ? (Object.entries(json)[0] ?? []) : [json]
  const chosen = cases.find(([name]) => name === tag)
  if (chosen === undefined || (isObject && Object.keys(json).length > 1)) {
    throw new ValueRefusal(`${at} must be {"<case>": value} or "<case>" of ${cases.map(([name]) => name).join(', ')}`)
  }
  const [name, type] = chosen
  if (type !== undefined) return { tag: name, val: toComponentValue(payload, type, `${at}.${name}`) }
  if (payload !== null) throw new ValueRefusal(`${at}.${name} takes no value`)
  return { tag: name }
}
