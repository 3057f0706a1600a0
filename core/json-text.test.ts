import { expect, it } from 'vitest'
import { readJsonInTurns } from './json-text.ts'

const LONG = ' '.repeat(70_000)
const read = (text: string) =>
  readJsonInTurns(Buffer.from(text), { maxItems: 10, parse: (bytes) => JSON.parse(bytes.toString()) as unknown })

it.each([
  [`${LONG}[1]`, [1]],
  [`[${LONG}]`, []],
  [`[${LONG}1${LONG}]`, [1]],
])('reads a list with more than 64 KiB of blanks', async (text, value) => {
  expect(await read(text)).toEqual(value)
})

it.each([
  ['[]x', 'invalid JSON: only blanks are accepted after the list, at most 65536'],
  ['[1] 2', 'invalid JSON: only blanks are accepted after the list, at most 65536'],
  [`[]${LONG}`, 'invalid JSON: only blanks are accepted after the list, at most 65536'],
  ['[}', 'invalid JSON: a list must end with ]'],
  ['[1}', 'invalid JSON: a list must end with ]'],
  ['[1', 'invalid JSON: unexpected end'],
])('says what is wrong with %.10s', async (text, message) => {
  await expect(read(text)).rejects.toMatchObject({ kind: 'malformed', message })
})
