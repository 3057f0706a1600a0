/**
 * Messages of very many fields. Making an object of a field costs a thousand times what sending it does, so fields are counted before any is made
 * (Protocol Buffers, "Encoding"), and what has many is read in turns: parts of a message that are read one after the other give the whole.
 */
import { setImmediate } from 'node:timers/promises'
import { create, mergeFromBinary } from '@bufbuild/protobuf'
import type { DescMessage, MessageShape } from '@bufbuild/protobuf'

/** Up to here a message is read at once: some ten milliseconds. */
export const MAX_FIELDS_AT_ONCE = 2_000
/** Of a message that is read in turns: the runs of the largest backlog, with six fields each. */
export const MAX_FIELDS = 700_000
/** Of one part of it. */
const FIELDS_PER_TURN = 500

const WIRE = { varint: 0, bits64: 1, bytes: 2, bits32: 5 } as const
const MAX_VARINT_BYTES = 10

/** A message that breaks a bound or is none at all. */
class UnreadableMessage extends Error {}

/** The place of one field: of its tag, of its content and behind it. `message`: what its content is, if that is a message. */
type Field = { start: number; contentStart: number; end: number; message: DescMessage | 'entry' | undefined }

type Kind = DescMessage | 'entry'

/** Throws for bytes that are no fields. Groups have not been part of the language since proto3. */
function* fieldsOf(kind: Kind, bytes: Uint8Array, from: number, to: number): Generator<Field> {
  let at = from
  const varint = () => {
    let value = 0
    for (let index = 0; index < MAX_VARINT_BYTES; index++) {
      const byte = at < to ? (bytes[at++] as number) : 0x80
      value += (byte & 0x7f) * 2 ** (7 * index)
      if (byte < 0x80) return value
    }
    throw new UnreadableMessage('the message is damaged')
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
    } else throw new UnreadableMessage('the message has a field of a kind that is not accepted')
    if (at > to) throw new UnreadableMessage('the message is damaged')
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

/** How many fields a message has, those of the messages in it included. Throws above `max`, and for bytes that are no message. */
export function countFields(schema: DescMessage, bytes: Uint8Array, max: number): number {
  const count = (kind: Kind, from: number, to: number, before: number): number => {
    let sum = before
    for (const { contentStart, end, message } of fieldsOf(kind, bytes, from, to)) {
      if (++sum > max) throw new UnreadableMessage(`the message has more than ${max} fields`)
      if (message !== undefined) sum = count(message, contentStart, end, sum)
    }
    return sum
  }
  return count(schema, 0, bytes.length, 0)
}

/** The message, read in turns. Throws where one item of a list in it has as many fields as are read at once. */
export async function readInTurns<S extends DescMessage>(schema: S, bytes: Uint8Array): Promise<MessageShape<S>> {
  const message = create(schema)
  for (const part of partsOf(schema, bytes)) {
    mergeFromBinary(schema, message, part)
    await setImmediate()
  }
  return message
}

/** Each of a few fields; one after the other they are the whole. */
function* partsOf(schema: DescMessage, bytes: Uint8Array): Generator<Uint8Array> {
  for (const outer of fieldsOf(schema, bytes, 0, bytes.length)) {
    if (outer.message === undefined || outer.message === 'entry') {
      yield bytes.subarray(outer.start, outer.end)
      continue
    }
    const tag = bytes.subarray(outer.start, outer.start + tagBytes(bytes, outer.start))
    const wrapped = (from: number, to: number) => Buffer.concat([tag, lengthOf(to - from), bytes.subarray(from, to)])
    let from = outer.contentStart
    let fields = 0
    for (const inner of fieldsOf(outer.message, bytes, outer.contentStart, outer.end)) {
      fields += 1
      if (inner.message !== undefined) {
        const content = bytes.subarray(inner.contentStart, inner.end)
        const isEntry = inner.message === 'entry'
        fields += isEntry ? 2 : countFields(inner.message as DescMessage, content, MAX_FIELDS_AT_ONCE)
      }
      if (fields < FIELDS_PER_TURN) continue
      yield wrapped(from, inner.end)
      from = inner.end
      fields = 0
    }
    yield wrapped(from, outer.end)
  }
}

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
