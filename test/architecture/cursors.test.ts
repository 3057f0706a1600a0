/** Every list with an offset has a cursor, unless it is in this list with its reason. */
import { expect, test } from 'vitest'
import { wholeDocument } from '../harness/openapi.ts'

const WITHOUT_CURSOR: Readonly<Record<string, string>> = {
  '/proplets/{proplet_id}/alive-history': 'at most ten times, which are not rows',
  '/proplets/{proplet_id}/metrics': 'at most one measurement, which is not stored',
}

type Schema = { $ref?: string; properties?: object; anyOf?: Schema[]; oneOf?: Schema[] }
type Parameter = { $ref?: string; name: string; in: string }
type Operation = {
  parameters?: Parameter[]
  responses: Record<string, { content?: Record<string, { schema: Schema }> }>
}

const document = wholeDocument() as { paths: Record<string, Record<string, Operation>> }

function resolve<T extends { $ref?: string }>(of: T): T {
  if (of.$ref === undefined) return of
  const names = of.$ref.split('/').slice(1)
  return names.reduce<unknown>((at, name) => (at as Record<string, unknown>)[name], document) as T
}

const lists = Object.entries(document.paths).flatMap(([path, { get }]) => {
  const query = (get?.parameters ?? []).map(resolve).map(({ name }) => name)
  return get !== undefined && query.includes('offset') ? [{ path, query, get }] : []
})

function hasNext(schema: Schema): boolean {
  const { properties, anyOf, oneOf } = resolve(schema)
  return [...(anyOf ?? []), ...(oneOf ?? [])].some(hasNext) || (properties !== undefined && 'next' in properties)
}

test('every list with an offset has a cursor and shows the next one', () => {
  expect(lists.length).toBeGreaterThan(50)
  const without = lists.filter(({ query, get }) => {
    const schema = get.responses['200']?.content?.['application/json']?.schema
    return !query.includes('cursor') || schema === undefined || !hasNext(schema)
  })
  expect(without.map(({ path }) => path).toSorted()).toEqual(Object.keys(WITHOUT_CURSOR).toSorted())
})
