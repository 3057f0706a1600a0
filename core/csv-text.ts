/**
 * The text of a CSV file as programs for tables write it: its encoding, and its delimiter. Excel writes UTF-8 or UTF-16 with a byte order
 * mark, or the charset of its system, and a semicolon where the comma separates decimals.
 */
import { isUtf8 } from 'node:buffer'

export type Delimiter = ',' | ';' | '\t'

/** A header is not longer: the first line of a crafted file may be the whole file. */
const MAX_HEADER_CHARS = 4096
const DELIMITERS: readonly Delimiter[] = [',', ';', '\t']
const UTF_16_MARKS = [
  { bytes: [0xff, 0xfe], charset: 'utf-16le' },
  { bytes: [0xfe, 0xff], charset: 'utf-16be' },
] as const
const BYTE_ORDER_MARK = '\ufeff'
const NEEDS =
  'the file must be UTF-8, UTF-16 with a byte order mark, or in the charset of the content type (text/csv; charset=windows-1252)'

/** The reason why a file cannot be read, as a sentence for its sender. */
export class CsvTextFault extends Error {}

/**
 * The text without its byte order mark. The mark overrides the announced charset. Throws a `CsvTextFault` for bytes that are not in the
 * charset, and for a charset that is not known.
 */
export function decodeCsv(bytes: Buffer, charset?: string): string {
  const marked = UTF_16_MARKS.find(({ bytes: mark }) => mark.every((byte, index) => bytes[index] === byte))?.charset
  const label = marked ?? (charset === undefined || charset === '' ? 'utf-8' : charset)
  if (/^utf-?8$/i.test(label)) {
    if (!isUtf8(bytes)) throw new CsvTextFault(NEEDS)
    return withoutMark(bytes.toString('utf8'))
  }
  return withoutMark(decode(bytes, label))
}

function decode(bytes: Buffer, label: string): string {
  let decoder: TextDecoder
  try {
    decoder = new TextDecoder(label, { fatal: true })
  } catch {
    throw new CsvTextFault(`the charset ${JSON.stringify(label)} is not known; ${NEEDS}`)
  }
  try {
    return decoder.decode(bytes)
  } catch {
    throw new CsvTextFault(`the file is not in the charset ${JSON.stringify(label)}; ${NEEDS}`)
  }
}

const withoutMark = (text: string) => (text.startsWith(BYTE_ORDER_MARK) ? text.slice(1) : text)

/**
 * The delimiter, and the text whose line `sep=…` is empty. It is a comma, unless a line `sep=` says otherwise, or the first line, split by
 * it, contains a known column: a name may contain a semicolon, so a file of names is never split by it.
 */
export function delimitedCsv(text: string, known: readonly string[]): { text: string; delimiter: Delimiter } {
  const declared = /^"?sep=(.?)"?(?=[\r\n]|$)/i.exec(text)
  if (declared !== null) {
    const delimiter = DELIMITERS.find((one) => one === declared[1])
    if (delimiter === undefined) throw new CsvTextFault('the line sep= must name a comma, a semicolon or a tab')
    return { text: text.slice(declared[0].length), delimiter }
  }
  const first = /[^\r\n]+/.exec(text.slice(0, MAX_HEADER_CHARS))?.[0] ?? ''
  const names = (delimiter: Delimiter) =>
    first.split(delimiter).map((cell) => cell.trim().replaceAll('"', '').toLowerCase())
  return { text, delimiter: DELIMITERS.find((one) => names(one).some((name) => known.includes(name))) ?? ',' }
}
