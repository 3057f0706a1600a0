/** Which line of a CSV file a row or a fault is named by. */
import { expect, test } from 'vitest'
import { parseCsv } from './csv.ts'

test.each([
  ['a\nb\n', [1, 2]],
  ['a\r\n\r\nb', [1, 3]],
  ['"two\nlines"\nb', [1, 3]],
  ['\ufeffa\rb', [1, 2]],
])('rows of %j are named by the lines that they begin on', async (text, lines) => {
  expect((await parseCsv(text, 10)).map(({ line }) => line)).toEqual(lines)
})

test.each([
  ['ok\n\n"unclosed\nmore\nand more', 'line 3 is no CSV: a quote is not closed'],
  ['ok\n"closed"\n"unclosed', 'line 3 is no CSV: a quote is not closed'],
  ['ok\nb"x"\nc', 'line 2 is no CSV: a quote stands inside a cell'],
  ['ok\n"b"x\nc', 'line 2 is no CSV: a quote stands inside a cell'],
])('%j is refused by the line that is at fault', async (text, message) => {
  await expect(parseCsv(text, 10)).rejects.toThrow(message)
})

test.each([
  ['a,b\nc', [['a', 'b'], ['c']]],
  ['  a b ,\t c\t,,\n', [['a b', 'c']]],
  [' "a,""b""" ,"\n"\n', [['a,"b"', '\n']]],
  [',x\n\n,,\n', [['', 'x'], []]],
  ['"",""\r"a"', [[], ['a']]],
])('the cells of %j', async (text, cells) => {
  expect((await parseCsv(text, 10)).map((row) => row.cells)).toEqual(cells)
})

test.each([
  ['more rows than asked for', 'a\n'.repeat(11), 'at most 10 rows'],
  ['mostly empty lines', '\n'.repeat(1000), 'few empty lines'],
  ['a row of commas', ','.repeat(70_000), 'line 1 is longer than 65536 characters'],
  ['a quoted cell of lines of commas', `a\n"${',\n'.repeat(40_000)}"`, 'line 2 is longer than 65536 characters'],
])('%s are refused before all of it is read', async (_what, text, message) => {
  await expect(parseCsv(text, 10)).rejects.toThrow(message)
})
