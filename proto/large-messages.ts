/**
 * Messages with very many fields. Decoding a field costs a thousand times as much as sending it, so fields are counted
 * before any is decoded, and large messages are decoded and encoded incrementally: the concatenated parts of a message
 * are the message (Protocol Buffers, "Encoding").
 */
import { setImmediate } from 'node:timers/promises'
import { create, fromBinary, mergeFromBinary, toBinary } from '@bufbuild/protobuf'
import type { DescMessage, MessageInitShape, MessageShape } from '@bufbuild/protobuf'

/** Up to this limit a message is decoded at once, in some ten milliseconds. */
const MAX_FIELDS_AT_ONCE = 2_000
/** Limit for incremental decoding: the runs of the largest backlog, with six fields each. */
const MAX_FIELDS = 700_000
/** Fields per part. */
const FIELDS_PER_PART = 500
/** Parts are decoded, and encoded, for this long before other work gets a turn. */
const TURN_MS = 10
/** Unknown fields are dropped. */
const OPTIONS = { readUnknownFields: false }

const WIRE = { varint: 0, bits64: 1, bytes: 2, bits32: 5 } as const
const MAX_VARINT_BYTES = 10

/** A message that exceeds a limit or is malformed. */
export class UnreadableMessage extends Error {}

/**
 * The location of one field: of its tag, its content and its end. `message`: the type of the content, if it is a message.
 */
type Field = { start: number; contentStart: number; end: number; message: DescMessage | 'entry' | undefined }

type Kind = DescMessage | 'entry'

/** Throws for malformed bytes. Groups are not part of the language since proto3. */
function* fieldsOf(kind: Kind, bytes: Uint8Array, from: number, to: number): Generator<Field> {
  let at = from
  const varint = () => {
    let value = 0
    for (let index = 0; index < MAX_VARINT_BYTES; index++) {
      const byte = at < to ? (bytes[at++] as number) : 0x80
      value += (byte & 0x7f) * 2 ** (7 * index)
      if (byte < 0x80) return value
    }
    throw new UnreadableMessage('the message is malformed')
  }
  while (at < to) {
    const start = at
    const tag = varint()
    const wireType = tag % 8
    let contentStart = at
    if (wireType === WIRE.varint) varint()
    else if (wireType === WIRE.bits64) at += 8
    else if (wireType === WIRE.bits32) at += 4
    else if (wireType === WIRE.bytes) {
      const length = varint()
      contentStart = at
      at += length
    } else throw new UnreadableMessage('the message has a field with an unsupported wire type')
    if (at > to) throw new UnreadableMessage('the message is malformed')
    const message = wireType === WIRE.bytes ? messageIn(kind, Math.floor(tag / 8)) : undefined
    yield { start, contentStart, end: at, message }
  }
}

const byNumber = new WeakMap<DescMessage, Map<number, Kind>>()

function messageIn(kind: Kind, number: number): Kind | undefined {
  if (kind === 'entry') return undefined
  let known = byNumber.get(kind)
  if (known === undefined) {
    known = new Map()
    for (const field of kind.fields) {
      if (field.fieldKind === 'map') known.set(field.number, 'entry')
      else if (field.message !== undefined) known.set(field.number, field.message)
    }
    byNumber.set(kind, known)
  }
  return known.get(number)
}

/** The number of fields of a message, including nested ones. Throws above `max`, and for malformed bytes. */
function countFields(schema: DescMessage, bytes: Uint8Array, max: number): number {
  let at = 0
  let count = 0
  const varint = (to: number): number => {
    let value = 0
    let factor = 1
    for (let index = 0; index < MAX_VARINT_BYTES && at < to; index++) {
      const byte = bytes[at++] as number
      value += (byte & 0x7f) * factor
      if (byte < 0x80) return value
      factor *= 0x80
    }
    throw new UnreadableMessage('the message is malformed')
  }
  // This counts what `fieldsOf` returns, without an object per field: for a hostile message this is all the work that is done.
  const countIn = (kind: Kind, to: number): void => {
    while (at < to) {
      if (++count > max) throw new UnreadableMessage(`the message has more than ${max} fields`)
      const tag = varint(to)
      const wireType = tag % 8
      if (wireType === WIRE.varint) varint(to)
      else if (wireType === WIRE.bits64) at += 8
      else if (wireType === WIRE.bits32) at += 4
      else if (wireType === WIRE.bytes) {
        const length = varint(to)
        const end = at + length
        if (end > to) throw new UnreadableMessage('the message is malformed')
        const message = length === 0 ? undefined : messageIn(kind, Math.floor(tag / 8))
        if (message === undefined) at = end
        else countIn(message, end)
      } else throw new UnreadableMessage('the message has a field with an unsupported wire type')
      if (at > to) throw new UnreadableMessage('the message is malformed')
    }
  }
  countIn(schema, bytes.length)
  return count
}

/** Decodes a message with few enough fields to be decoded at once. Throws `UnreadableMessage`. */
export function readAtOnce<S extends DescMessage>(schema: S, bytes: Uint8Array): MessageShape<S> {
  countFields(schema, bytes, MAX_FIELDS_AT_ONCE)
  return fromBinary(schema, bytes, OPTIONS)
}

/**
 * Decodes a message, incrementally if it has many fields. Throws `UnreadableMessage`, also if an item of a list in it has
 * too many.
 */
export async function readInTurns<S extends DescMessage>(schema: S, bytes: Uint8Array): Promise<MessageShape<S>> {
  if (countFields(schema, bytes, MAX_FIELDS) <= MAX_FIELDS_AT_ONCE) return fromBinary(schema, bytes, OPTIONS)
  const message = create(schema)
  await inTurns(partsOf(schema, bytes), (part) => mergeFromBinary(schema, message, part, OPTIONS))
  return message
}

/** Encodes a message with many fields incrementally, from its parts. */
export async function writeInTurns<S extends DescMessage>(
  schema: S,
  parts: Iterable<MessageInitShape<S>>,
): Promise<Buffer> {
  const written: Uint8Array[] = []
  await inTurns(parts, (part) => written.push(toBinary(schema, create(schema, part))))
  return Buffer.concat(written)
}

async function inTurns<Part>(parts: Iterable<Part>, work: (part: Part) => unknown): Promise<void> {
  let beganMs = -Infinity
  for (const part of parts) {
    if (performance.now() - beganMs > TURN_MS) {
      await setImmediate()
      beganMs = performance.now()
    }
    work(part)
  }
}

/** Parts with a few fields each; concatenated they are the whole. */
function* partsOf(schema: DescMessage, bytes: Uint8Array): Generator<Uint8Array> {
  let from = 0
  let fields = 0
  for (const outer of fieldsOf(schema, bytes, 0, bytes.length)) {
    const inner = outer.message === undefined ? 0 : fieldsIn(outer.message, bytes, outer, MAX_FIELDS)
    if (outer.message !== undefined && outer.message !== 'entry' && inner > FIELDS_PER_PART) {
      yield bytes.subarray(from, outer.start)
      yield* splitField(outer, outer.message, bytes)
      from = outer.end
      fields = 0
      continue
    }
    fields += 1 + inner
    if (fields < FIELDS_PER_PART) continue
    yield bytes.subarray(from, outer.end)
    from = outer.end
    fields = 0
  }
  yield bytes.subarray(from)
}

/** Splits a field with a large message into several occurrences of that field with a few fields each. */
function* splitField(outer: Field, message: DescMessage, bytes: Uint8Array): Generator<Uint8Array> {
  const tag = bytes.subarray(outer.start, outer.start + tagBytes(bytes, outer.start))
  const wrapped = (from: number, to: number) => Buffer.concat([tag, lengthOf(to - from), bytes.subarray(from, to)])
  let from = outer.contentStart
  let fields = 0
  for (const inner of fieldsOf(message, bytes, outer.contentStart, outer.end)) {
    fields += 1
    if (inner.message !== undefined) fields += fieldsIn(inner.message, bytes, inner, MAX_FIELDS_AT_ONCE)
    if (fields < FIELDS_PER_PART) continue
    yield wrapped(from, inner.end)
    from = inner.end
    fields = 0
  }
  yield wrapped(from, outer.end)
}

const fieldsIn = (kind: Kind, bytes: Uint8Array, { contentStart, end }: Field, max: number): number =>
  kind === 'entry' ? 2 : countFields(kind, bytes.subarray(contentStart, end), max)

function tagBytes(bytes: Uint8Array, at: number): number {
  let length = 1
  while ((bytes[at + length - 1] as number) >= 0x80) length += 1
  return length
}

function lengthOf(value: number): Buffer {
  const bytes: number[] = []
  let rest = value
  for (; rest > 0x7f; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) | 0x80)
  bytes.push(rest)
  return Buffer.from(bytes)
}
