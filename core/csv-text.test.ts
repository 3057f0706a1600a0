/** Encodings and delimiters of files that programs for tables write (contract section 14, decision 94). */
import { describe, expect, test } from 'vitest'
import { headerOf } from './csv-records.ts'
import { CsvTextFault, decodeCsv, delimitedCsv } from './csv-text.ts'

const TEXT = 'name,tags\nKüche,a'
const utf16 = Buffer.from(`\ufeff${TEXT}`, 'utf16le')

describe('the text of a file', () => {
  test.each([
    ['UTF-8', Buffer.from(TEXT), undefined],
    ['UTF-8 with a byte order mark', Buffer.from(`\ufeff${TEXT}`), undefined],
    ['announced UTF-8', Buffer.from(TEXT), 'UTF-8'],
    ['UTF-16 as Excel writes it', utf16, undefined],
    ['UTF-16 with the more significant byte first', Buffer.from(utf16).swap16(), undefined],
    ['UTF-16 whose mark contradicts the charset', utf16, 'windows-1252'],
    ['UTF-16 without a mark, announced', Buffer.from(TEXT, 'utf16le'), 'utf-16le'],
    ['Windows-1252, announced', Buffer.from(TEXT, 'latin1'), 'windows-1252'],
    ['Latin 1, announced', Buffer.from(TEXT, 'latin1'), 'iso-8859-1'],
  ])('%s', (_name, bytes, charset) => expect(decodeCsv(bytes, charset)).toBe(TEXT))

  test.each([
    ['Latin 1 that is not announced', Buffer.from(TEXT, 'latin1'), undefined],
    ['Latin 1 that is announced as UTF-8', Buffer.from(TEXT, 'latin1'), 'utf-8'],
    ['bytes that the announced charset does not have', Buffer.from([0x81, 0x20]), 'shift_jis'],
    ['half a character of UTF-16', utf16.subarray(0, -1), undefined],
    ['an unknown charset', Buffer.from(TEXT), 'klingon'],
  ])('%s is refused with what is accepted', (_name, bytes, charset) => {
    expect(() => decodeCsv(bytes, charset)).toThrow(CsvTextFault)
    expect(() => decodeCsv(bytes, charset)).toThrow('must be UTF-8, UTF-16 with a byte order mark')
  })
})

const KNOWN = ['id', 'name', 'secret', 'tags', 'status']

describe('the delimiter', () => {
  test.each([
    ['name,secret\na,b', ','],
    ['name;secret\na;b', ';'],
    ['"Name" ; "x"\na;b', ';'],
    ['name\tsecret\na\tb', '\t'],
    ['\r\n\nid;name\r\n', ';'],
    ['name', ','],
    ['hall; north\nhall; south', ','],
    ['one\ttwo', ','],
    ['one;two,name', ','],
    ['', ','],
  ])('of %j is %j', (text, delimiter) => expect(delimitedCsv(text, KNOWN)).toEqual({ text, delimiter }))

  test.each([
    ['sep=;\r\na;b', ';', '\r\na;b'],
    ['"sep=;"\na;b', ';', '\na;b'],
    ['SEP=\t\nname,x', '\t', '\nname,x'],
    ['sep=,\nname;x', ',', '\nname;x'],
  ])('that the line sep= of %j gives is %j, and the lines keep their numbers', (text, delimiter, rest) =>
    expect(delimitedCsv(text, KNOWN)).toEqual({ text: rest, delimiter }),
  )

  test.each(['sep=|\na|b', 'sep=\na'])('of %j is refused', (text) =>
    expect(() => delimitedCsv(text, KNOWN)).toThrow('must name a comma, a semicolon or a tab'),
  )

  test('a line that only begins like sep= is a name', () => {
    expect(delimitedCsv('sep=1234\n', KNOWN)).toEqual({ text: 'sep=1234\n', delimiter: ',' })
  })
})

describe('a first row that names no column', () => {
  test.each([
    [['Device name', 'Serial']],
    [['client_name']],
    [['Device-ID', 'x']],
    [['label', 'key']],
    [['nmae', 'x']],
    [['names']],
  ])('%j looks like a header and is refused with the columns', (cells) => {
    expect(headerOf(cells, KNOWN)).toMatch(/looks like a header .* columns are id, name, secret, tags, status/)
  })

  test.each([
    [['pump 1', 'ignored']],
    [['status panel']],
    [['label']],
    [['Device 7']],
    [['name tag printer']],
    [['hall', 'north']],
  ])('%j is data', (cells) => {
    expect(headerOf(cells, KNOWN)).toBeUndefined()
  })
})
