/** Arrays of JSON texts arrive as they are. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { jsonArray } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { TestDatabase } from '../harness/database.ts'

let own: TestDatabase

beforeAll(async () => {
  own = await createTestDatabase()
})
afterAll(() => own[Symbol.asyncDispose]())

const VALUES: Record<string, unknown[]> = {
  none: [],
  'an empty object': [{}],
  'null and empty text': [null, ''],
  'quotes and backslashes': ['"\\', { '"': '\\"' }, '\\\\n'],
  'what arrays are written with': ['{}', ',', 'NULL', [['a'], { b: [] }]],
  'control characters and line separators': ['\u0001\n\t\u007f\u2028\u2029'],
  'characters of four bytes, and halves of them': ['😀', '\ud83d', '\udc00x'],
}

test.each(Object.entries(VALUES))('%s', async (_what, values) => {
  const texts = values.map((value) => JSON.stringify(value))
  const { rows } = await sql<{ text: string }>`
    SELECT text::text FROM unnest(${jsonArray(texts)}::json[]) WITH ORDINALITY AS given (text, place) ORDER BY place`.execute(
    own.database.db,
  )
  expect(rows.map((row) => row.text)).toEqual(texts)
})
