/** Reading DER that strangers send: signing requests and OCSP requests. Everything is checked against its bounds. */
import { ServiceError } from '#core/errors/index.ts'

export type DerValue = {
  readonly tag: number
  /** The bytes inside. */
  readonly content: Buffer
  /** Tag, length and content: what signatures and copies are made of. */
  readonly whole: Buffer
}

export function malformedDer(): ServiceError {
  return new ServiceError('malformed', 'the body must be valid DER')
}

/** The one value that fills the bytes. Throws `malformed`. */
export function parseDer(bytes: Buffer): DerValue {
  const { value, end } = readAt(bytes, 0)
  if (end !== bytes.length) throw malformedDer()
  return value
}

/** The values inside a constructed one, in order. Throws `malformed`. */
export function childrenOf({ content }: DerValue): DerValue[] {
  const values: DerValue[] = []
  for (let at = 0; at < content.length;) {
    const { value, end } = readAt(content, at)
    values.push(value)
    at = end
  }
  return values
}

/** The value, when it has this tag. Throws `malformed` for another one or none. */
export function requireTag(value: DerValue | undefined, tag: number): DerValue {
  if (value === undefined || value.tag !== tag) throw malformedDer()
  return value
}

function readAt(bytes: Buffer, at: number): { value: DerValue; end: number } {
  const tag = bytes[at]
  const first = bytes[at + 1]
  // Tags of several bytes occur in nothing that is read here.
  if (tag === undefined || first === undefined || (tag & 0x1f) === 0x1f) throw malformedDer()
  let begin = at + 2
  let length = first
  if (first >= 0x80) {
    const digits = first & 0x7f
    if (digits === 0 || digits > 4) throw malformedDer()
    length = 0
    for (let index = 0; index < digits; index++) {
      const byte = bytes[begin + index]
      if (byte === undefined) throw malformedDer()
      length = length * 256 + byte
    }
    begin += digits
  }
  const end = begin + length
  if (end > bytes.length) throw malformedDer()
  return { value: { tag, content: bytes.subarray(begin, end), whole: bytes.subarray(at, end) }, end }
}

/** The dotted form of an object identifier. */
export function readOid(value: DerValue | undefined): string {
  const { content } = requireTag(value, 0x06)
  const arcs: number[] = []
  let arc = 0
  for (const byte of content) {
    arc = arc * 128 + (byte & 0x7f)
    if (!Number.isSafeInteger(arc)) throw malformedDer()
    if (byte < 0x80) {
      arcs.push(arc)
      arc = 0
    }
  }
  const [head = 0, ...rest] = arcs
  const first = Math.min(2, Math.floor(head / 40))
  return [first, head - first * 40, ...rest].join('.')
}
