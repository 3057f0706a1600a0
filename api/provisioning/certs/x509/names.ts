/** Distinguished names, and the other names of a certificate's subject (RFC 5280 sections 4.1.2.6 and 4.2.1.6). */
import { isIPv4, isIPv6 } from 'node:net'
import { explicit, implicit, oid, sequence, setOf, tlv, utf8String } from './der.ts'
import { OID } from './oids.ts'

export type SubjectName = {
  commonName: string
  organization?: readonly string[] | undefined
  organizationalUnit?: readonly string[] | undefined
  country?: readonly string[] | undefined
  province?: readonly string[] | undefined
  locality?: readonly string[] | undefined
  street?: readonly string[] | undefined
  postalCode?: readonly string[] | undefined
}

const PRINTABLE_STRING = 0x13

/** A country is a PrintableString of two letters (RFC 5280 appendix A), everything else UTF-8. */
const valueOf = (type: string, text: string) =>
  type === OID.country ? tlv(PRINTABLE_STRING, Buffer.from(text, 'latin1')) : utf8String(text)

export function distinguishedName(name: SubjectName): Buffer {
  const parts: [string, readonly string[] | undefined][] = [
    [OID.country, name.country],
    [OID.province, name.province],
    [OID.locality, name.locality],
    [OID.street, name.street],
    [OID.postalCode, name.postalCode],
    [OID.organization, name.organization],
    [OID.organizationalUnit, name.organizationalUnit],
    [OID.commonName, [name.commonName]],
  ]
  const attributes = parts.flatMap(([type, values = []]) =>
    values.map((text) => setOf(sequence(oid(type), valueOf(type, text)))),
  )
  return sequence(...attributes)
}

export type AlternativeNames = {
  dnsNames?: readonly string[]
  ipAddresses?: readonly string[]
  uris?: readonly string[]
}

/** Undefined: there are none. */
export function alternativeNames({ dnsNames = [], ipAddresses = [], uris = [] }: AlternativeNames): Buffer | undefined {
  const names = [
    ...dnsNames.map((name) => implicit(2, Buffer.from(name, 'latin1'))),
    ...uris.map((uri) => implicit(6, Buffer.from(uri, 'latin1'))),
    ...ipAddresses.map((address) => implicit(7, addressBytes(address))),
  ]
  return names.length === 0 ? undefined : sequence(...names)
}

/** Where something about the certificate is asked: a GeneralName of the kind URI. */
export const uriName = (uri: string): Buffer => implicit(6, Buffer.from(uri, 'latin1'))
/** DistributionPoint with the full name of one address (RFC 5280 section 4.2.1.13). */
export const distributionPoint = (uri: string): Buffer => sequence(explicit(0, explicit(0, uriName(uri))))

/** Four or sixteen bytes. The caller has checked that it is an address. */
export function addressBytes(address: string): Buffer {
  if (isIPv4(address)) return Buffer.from(address.split('.').map(Number))
  if (!isIPv6(address)) throw new Error(`not an address: ${address}`)
  // The URL parser writes an IPv4 tail as two groups.
  const canonical = new URL(`http://[${address}]/`).hostname.slice(1, -1)
  const [head = '', tail] = canonical.split('::')
  const groups = (text: string) => (text === '' ? [] : text.split(':').map((group) => Number.parseInt(group, 16)))
  const [before, after] = [groups(head), tail === undefined ? [] : groups(tail)]
  const all = [...before, ...Array<number>(8 - before.length - after.length).fill(0), ...after]
  return Buffer.from(all.flatMap((group) => [group >> 8, group & 0xff]))
}
