/** Parses untrusted DER. */
import { AsnParser } from '@peculiar/asn1-schema'
import { fromBER } from 'asn1js'
import type { FromBerOptions } from 'asn1js'

/** Limits that are checked before values are created. */
export type DerBounds = Required<Pick<FromBerOptions, 'maxContentLength' | 'maxNodes' | 'maxDepth'>>

/** The value that fills the bytes. Throws an error of the library for anything else. */
export function parseDer<T>(bytes: Buffer, type: new () => T, bounds: DerBounds): T {
  if (bytes.length > bounds.maxContentLength) throw new RangeError(`more than ${bounds.maxContentLength} bytes`)
  const { offset, result } = fromBER(Uint8Array.from(bytes), bounds)
  if (offset !== bytes.length) throw new Error(result.error || 'the value does not fill the bytes')
  return AsnParser.fromASN(result, type)
}
