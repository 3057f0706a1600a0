import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { sql } from './sql.ts'

const statementOf = (part: { statement(): { text: string; values: readonly unknown[] } }) => {
  const { text, values } = part.statement()
  return [text, values]
}

describe('the sql template', () => {
  it('passes values as parameters, numbered from one', () => {
    const tags = ['a', 'b']
    expect(statementOf(sql`SELECT ${1}, ${'x'} WHERE tags @> ${tags} AND note IS ${null}`)).toEqual([
      'SELECT $1, $2 WHERE tags @> $3 AND note IS $4',
      [1, 'x', tags, null],
    ])
  })

  it('embeds SQL with its values', () => {
    const own = sql<boolean>`owner = ${7}`
    const either = sql`(${own} OR id = ${'u'})`
    expect(statementOf(sql`SELECT ${0} WHERE ${either} LIMIT ${9}`)).toEqual([
      'SELECT $1 WHERE (owner = $2 OR id = $3) LIMIT $4',
      [0, 7, 'u', 9],
    ])
    expect(statementOf(own)).toEqual(['owner = $1', [7]])
  })

  it('joins values and parts, by default with commas', () => {
    expect(statementOf(sql`IN (${sql.join([1, 2, 3])})`)).toEqual(['IN ($1, $2, $3)', [1, 2, 3]])
    const conditions = [sql`a = ${1}`, sql`b = ${2}`]
    expect(statementOf(sql.join(conditions, sql` AND `))).toEqual(['a = $1 AND b = $2', [1, 2]])
    expect(statementOf(sql.join([sql`only`]))).toEqual(['only', []])
    expect(statementOf(sql.join([]))).toEqual(['', []])
  })

  it('quotes names', () => {
    expect(statementOf(sql`${sql.ref('c.id')} ${sql.table('clients')} ${sql.ref('a"; DROP')}`)).toEqual([
      '"c"."id" "clients" "a""; DROP"',
      [],
    ])
  })

  it('never turns a value into SQL', () => {
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.string(), fc.integer(), fc.constant(null))), (given) => {
        const { text, values } = sql`SELECT ${sql.join(given)}`.statement()
        expect(text).toBe(`SELECT ${given.map((_, index) => `$${index + 1}`).join(', ')}`)
        expect(values).toEqual(given)
      }),
    )
  })
})
