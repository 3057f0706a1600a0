/** DER as X.690 writes it, read back, and refused where it is damaged. */
import { expect, it } from 'vitest'
import { generalizedTime, integer, namedBits, oid, sequence, time, utf8String } from './der.ts'
import { addressBytes } from './names.ts'
import { childrenOf, parseDer, readOid } from './read-der.ts'

const hex = (bytes: Buffer) => bytes.toString('hex')

it.each([
  [0, '020100'],
  [127, '02017f'],
  [128, '02020080'],
  [256, '02020100'],
  [Buffer.from('00000080', 'hex'), '02020080'],
  [Buffer.from('7f01', 'hex'), '02027f01'],
])('an integer has the fewest bytes and no sign: %s', (value, wanted) => {
  expect(hex(integer(value))).toBe(wanted)
})

it.each(['1.2.840.10045.4.3.2', '2.5.29.15', '1.3.6.1.5.5.7.48.1.2', '2.16.840.1.101.3.4.2.1', '1.3.14.3.2.26'])(
  'the object identifier %s is read as it was written',
  (name) => {
    expect(readOid(parseDer(oid(name)))).toBe(name)
  },
)

it('times are UTCTime until 2049 and GeneralizedTime from 2050 on (RFC 5280 section 4.1.2.5)', () => {
  expect(time(new Date('2049-12-31T23:59:59.900Z')).toString('latin1')).toBe('\u0017\r491231235959Z')
  expect(time(new Date('2050-01-01T00:00:00Z'))).toEqual(generalizedTime(new Date('2050-01-01T00:00:00Z')))
})

it('bits of a list stand from the left, and lengths above 127 take bytes of their own', () => {
  expect(hex(namedBits(0, 5, 6))).toBe('03020186')
  expect(hex(namedBits(0))).toBe('03020780')
  for (const length of [127, 128, 255, 256, 65_536]) {
    const value = parseDer(sequence(utf8String('x'.repeat(length))))
    expect(childrenOf(value)[0]?.content.length).toBe(length)
  }
})

it.each([
  ['10.1.2.3', '0a010203'],
  ['::', '0'.repeat(32)],
  ['::1', `${'0'.repeat(31)}1`],
  ['2001:db8::7', `20010db8${'0'.repeat(23)}7`],
  ['::ffff:1.2.3.4', `${'0'.repeat(20)}ffff01020304`],
  ['1:2:3:4:5:6:7:8', '00010002000300040005000600070008'],
])('the address %s has the bytes of RFC 5280 section 4.2.1.6', (address, wanted) => {
  expect(hex(addressBytes(address))).toBe(wanted)
})

it('whatever is cut short, too long or of an unknown form is refused, never read beyond its end', () => {
  const good = sequence(integer(5), sequence(oid('1.2.3'), utf8String('text')))
  for (let length = 0; length < good.length; length++)
    expect(() => parseDer(good.subarray(0, length)), String(length)).toThrow('must be valid DER')
  expect(() => parseDer(Buffer.concat([good, Buffer.from([0])]))).toThrow('must be valid DER')
  for (const text of ['3080', '30850000000001', '3f8101', '3084ffffffff', '1f']) {
    expect(() => parseDer(Buffer.from(text, 'hex')), text).toThrow('must be valid DER')
  }
})
