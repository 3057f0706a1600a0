/**
 * Converts an accepted pack to the other notation (RFC 8428 sections 5 and 6), record by record and label by label, without resolving
 * it. Unknown labels are omitted.
 */
import { formatBase64Url, parseBase64Url } from './base64url.ts'
import { parseCborPack } from './cbor-pack.ts'
import { parseJson } from './json.ts'
import { CBOR_LABELS } from './labels.ts'

const KEYS = new Map([...CBOR_LABELS].map(([key, label]) => [label, key]))

type Entry = [label: string, value: number | string | boolean | Uint8Array]

/** Throws `malformed` for bytes that are not a pack. */
export function packToJson(cbor: Uint8Array): Buffer {
  const records = parseCborPack(cbor) as Record<string, unknown>[]
  const shown = records.map((record) =>
    Object.fromEntries(
      entriesOf(record).map(([label, value]) => [label, value instanceof Uint8Array ? formatBase64Url(value) : value]),
    ),
  )
  return Buffer.from(JSON.stringify(shown))
}

/** Throws `malformed` for bytes that are not a pack. */
export function packToCbor(json: Uint8Array): Buffer {
  const records = parseJson(json) as Record<string, unknown>[]
  const parts = [head(ARRAY, records.length)]
  for (const record of records) {
    const entries = entriesOf(record)
    parts.push(head(MAP, entries.length))
    for (const [label, value] of entries) {
      const data = label === 'vd' && typeof value === 'string' ? parseBase64Url(value) : undefined
      parts.push(item(KEYS.get(label) as number), item(data ?? value))
    }
  }
  return Buffer.concat(parts)
}

function entriesOf(record: Record<string, unknown>): Entry[] {
  return Object.entries(record).filter(
    (entry): entry is Entry =>
      KEYS.has(entry[0]) &&
      (['number', 'string', 'boolean'].includes(typeof entry[1]) || entry[1] instanceof Uint8Array),
  )
}

/** Major types of RFC 8949 section 3.1. */
const [UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY, MAP] = [0, 1, 2, 3, 4, 5] as const
const [FALSE, TRUE, FLOAT] = [0xf4, 0xf5, 0xfb] as const

function item(value: Entry[1]): Buffer {
  if (typeof value === 'boolean') return Buffer.from([value ? TRUE : FALSE])
  if (typeof value === 'string') {
    const text = Buffer.from(value)
    return Buffer.concat([head(TEXT, text.length), text])
  }
  if (typeof value !== 'number') return Buffer.concat([head(BYTES, value.length), value])
  if (Number.isSafeInteger(value) && !Object.is(value, -0))
    return value < 0 ? head(NEGATIVE, -1 - value) : head(UNSIGNED, value)
  const bytes = Buffer.allocUnsafe(9)
  bytes[0] = FLOAT
  bytes.writeDoubleBE(value, 1)
  return bytes
}

/** A major type with its argument in the shortest form (RFC 8949 section 3). */
function head(major: number, argument: number): Buffer {
  const type = major << 5
  if (argument < 24) return Buffer.from([type | argument])
  if (argument < 0x100) return Buffer.from([type | 24, argument])
  const bytes = Buffer.allocUnsafe(argument < 0x1_0000 ? 3 : argument < 0x1_0000_0000 ? 5 : 9)
  bytes[0] = type | (bytes.length === 3 ? 25 : bytes.length === 5 ? 26 : 27)
  if (bytes.length === 9) bytes.writeBigUInt64BE(BigInt(argument), 1)
  else bytes.writeUIntBE(argument, 1, bytes.length - 1)
  return bytes
}
