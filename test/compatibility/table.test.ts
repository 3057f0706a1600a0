// contract, decision 74: the document says which versions of which clients work, call by call where one does not
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { CLIENTS, tablesOf } from './clients.ts'

const DOCUMENT = join(import.meta.dirname, '..', '..', 'docs', 'compatibility.md')

test('docs/compatibility.md shows the table of clients', () => {
  expect(readFileSync(DOCUMENT, 'utf8')).toContain(tablesOf(CLIENTS))
})
