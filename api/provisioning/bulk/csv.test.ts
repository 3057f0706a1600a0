/** Line numbers of rows and errors of a CSV file. */
import { expect, test } from 'vitest'
import { parseCsv } from './csv.ts'

test.each([
  ['a\nb\n', [1, 2]],
  ['a\r\n\r\nb', [1, 3]],
  ['"two\nlines"\nb', [1, 3]],
  ['a\rb', [1, 2]],
  [',,\n \n""\nb', [4]],
])('rows of %j have the numbers of their first lines', async (text, lines) => {
  expect((await parseCsv(text, 10)).rows.map(({ line }) => line)).toEqual(lines)
})

test.each([
  ['ok\n\n"unclosed\nmore\nand more', ['3: unclosed quote'], ['ok', 'more', 'and more']],
  ['ok\n"closed"\n"unclosed', ['3: unclosed quote'], ['ok', 'closed']],
  ['ok\nb"x"\nc', ['2: quote inside a cell'], ['ok', 'c']],
  ['ok\n"b"x\r\nc\n"d" e\nf', ['2: quote inside a cell', '4: quote inside a cell'], ['ok', 'c', 'f']],
  ['ok\n"two\nlines" x\nc', ['3: quote inside a cell'], ['ok', 'c']],
])('every invalid line of %j is reported, and the others are read', async (text, expected, read) => {
  const { rows, faults } = await parseCsv(text, 10)
  expect(faults).toEqual(
    expected.map((fault) => {
      const [line, reason] = fault.split(': ')
      return { line: Number(line), message: `is not valid CSV: ${reason}` }
    }),
  )
  expect(rows.map(({ cells }) => cells[0])).toEqual(read)
})

test.each([
  ['a,b\nc', [['a', 'b'], ['c']]],
  ['  a b ,\t c\t,,\n', [['a b', 'c']]],
  ['a;b\tc', [['a;b\tc']]],
  [' "a,""b""" ,"\n"\n', [['a,"b"', '\n']]],
  [',x\n\n,,\n', [['', 'x']]],
  ['"",""\r"a"', [['a']]],
])('the cells of %j', async (text, cells) => {
  expect((await parseCsv(text, 10)).rows.map((row) => row.cells)).toEqual(cells)
})

test.each([
  [';', 'a; "b;c" ;d,e\n', [['a', 'b;c', 'd,e']]],
  ['\t', 'a\t b \t"c\td"\n', [['a', 'b', 'c\td']]],
] as const)('the cells between %j', async (delimiter, text, cells) => {
  expect((await parseCsv(text, 10, delimiter)).rows.map((row) => row.cells)).toEqual(cells)
})

test.each([
  ['a row of commas', `${','.repeat(70_000)}\nb`, [1], ['b']],
  ['a quoted cell', `a\n"${'x'.repeat(70_000)}"\nb`, [2], ['a', 'b']],
])('%s is longer than a row may be, and the next one is read', async (_what, text, lines, read) => {
  const { rows, faults } = await parseCsv(text, 10)
  expect(faults.map(({ line }) => line)).toEqual(lines)
  expect(faults[0]?.message).toBe('is longer than 65536 characters')
  expect(rows.map(({ cells }) => cells[0])).toEqual(read)
})

test.each([
  ['more rows than the limit', 'a\n'.repeat(11), 'limited to 10 rows'],
  ['too many empty lines', '\n'.repeat(1000), '100 empty lines'],
])('%s are rejected before the whole file is read', async (_what, text, message) => {
  await expect(parseCsv(text, 10)).rejects.toThrow(message)
})
