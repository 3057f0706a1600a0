/** A pack in CBOR (RFC 8428 section 6): integer map keys become the labels of JSON, the rules are the same. */
import { CborFault, decodeCbor } from './cbor.ts'
import { CBOR_LABELS } from './labels.ts'
import { refusal } from './refusal.ts'

/** The records of a CBOR pack with the labels of JSON. Throws `malformed` for bytes that are not a CBOR pack. */
export function parseCborPack(bytes: Uint8Array): unknown {
  const pack = decode(bytes)
  if (!Array.isArray(pack)) throw refusal('', 'must be an array of records')
  return pack.map((record, index) => {
    if (!(record instanceof Map)) throw refusal(`/${index}`, 'must be a map')
    const fields: Record<string, unknown> = {}
    for (const [key, value] of record as Map<string | number, unknown>) {
      const label = typeof key === 'string' ? key : CBOR_LABELS.get(key)
      // The integer keys are conclusive (RFC 8428 section 6); an extension has a text key.
      if (label === undefined) throw refusal(`/${index}/${key}`, 'is not an integer label of SenML')
      if (Object.hasOwn(fields, label)) throw refusal(`/${index}/${label}`, 'must not be given twice')
      setOwn(fields, label, label === 'vd' ? bytesOnly(value, index) : value)
    }
    return fields
  })
}

function decode(bytes: Uint8Array): unknown {
  try {
    return decodeCbor(bytes)
  } catch (error) {
    if (error instanceof CborFault) throw refusal('', error.message)
    throw error
  }
}

function bytesOnly(value: unknown, index: number): unknown {
  if (value instanceof Uint8Array) return value
  throw refusal(`/${index}/vd`, 'must be a byte string')
}

/** A label such as `__proto__` is data, never the prototype. */
function setOwn(fields: Record<string, unknown>, label: string, value: unknown): void {
  if (label === '__proto__') Object.defineProperty(fields, label, { value, enumerable: true })
  else fields[label] = value
}
