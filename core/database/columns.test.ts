import { expect, test } from 'vitest'
import { sql } from '../sql.ts'
import { assigned, selected } from './columns.ts'

type Pump = { name: string; maxSpeed: number | null; tags: string[]; metadata: object; seal: Buffer }

const COLUMNS = { name: 'name', maxSpeed: 'max_speed', tags: 'tags', metadata: 'metadata', seal: 'seal' }

test('a SELECT has each column under the name of the field', () => {
  expect(selected({ name: 'name', maxSpeed: 'max_speed' }, 'p').statement()).toEqual({
    text: '"p"."name" AS "name", "p"."max_speed" AS "maxSpeed"',
    values: [],
  })
})

test('an UPDATE has the given fields only, null included, and JSON for an object', () => {
  const change: Partial<Pump> = { maxSpeed: null, tags: ['a'], metadata: { a: [1] }, seal: Buffer.from('x') }
  expect(sql.join(assigned<Partial<Pump>>(change, COLUMNS)).statement()).toEqual({
    text: '"max_speed" = $1, "tags" = $2, "metadata" = $3::jsonb, "seal" = $4',
    values: [null, ['a'], '{"a":[1]}', Buffer.from('x')],
  })
})

test('an undefined field is unchanged', () => {
  expect(assigned<{ name: string | undefined }>({ name: undefined }, { name: 'name' })).toEqual([])
})
