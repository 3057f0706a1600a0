/** Line numbers of rows and errors of a CSV file. */
import { expect, test } from 'vitest'
import { parseCsv } from './csv.ts'

test.each([
  ['a\nb\n', [1, 2]],
  ['a\r\n\r\nb', [1, 3]],
  ['"two\nlines"\nb', [1, 3]],
  ['\ufeffa\rb', [1, 2]],
])('rows of %j have the numbers of their first lines', async (text, lines) => {
  expect((await parseCsv(text, 10)).map(({ line }) => line)).toEqual(lines)
})

test.each([
  ['ok\n\n"unclosed\nmore\nand more', 'line 3 is not valid CSV: unclosed quote'],
  ['ok\n"closed"\n"unclosed', 'line 3 is not valid CSV: unclosed quote'],
  ['ok\nb"x"\nc', 'line 2 is not valid CSV: quote inside a cell'],
  ['ok\n"b"x\nc', 'line 2 is not valid CSV: quote inside a cell'],
])('the error of %j contains the line number', async (text, message) => {
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
  ['more rows than the limit', 'a\n'.repeat(11), 'limited to 10 rows'],
  ['too many empty lines', '\n'.repeat(1000), '100 empty lines'],
  ['a row of commas', ','.repeat(70_000), 'line 1 is longer than 65536 characters'],
  ['a quoted cell of lines of commas', `a\n"${',\n'.repeat(40_000)}"`, 'line 2 is longer than 65536 characters'],
])('%s are rejected before the whole file is read', async (_what, text, message) => {
  await expect(parseCsv(text, 10)).rejects.toThrow(message)
})
