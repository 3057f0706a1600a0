/** Which line of a CSV file a row or a fault is named by. */
import { expect, test } from 'vitest'
import { parseCsv } from './csv.ts'

test.each([
  ['a\nb\n', [1, 2]],
  ['a\r\n\r\nb', [1, 3]],
  ['"two\nlines"\nb', [1, 3]],
  ['\ufeffa\rb', [1, 2]],
])('rows of %j are named by the lines that they begin on', (text, lines) => {
  expect(parseCsv(text).map(({ line }) => line)).toEqual(lines)
})

test.each([
  ['ok\n\n"unclosed\nmore\nand more', 'line 3 is no CSV: a quote is not closed'],
  ['ok\n"closed"\n"unclosed', 'line 3 is no CSV: a quote is not closed'],
  ['ok\nb"x"\nc', 'line 2 is no CSV: a quote stands inside a cell'],
  ['ok\n"b"x\nc', 'line 2 is no CSV: a quote stands inside a cell'],
])('%j is refused by the line that is at fault', (text, message) => {
  expect(() => parseCsv(text)).toThrow(message)
})
