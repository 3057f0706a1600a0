import { expect, test } from 'vitest'
import { NextCursor } from '#core/cursor.ts'
import { MAX_PAGE_BYTES } from '#core/page.ts'
import { pageStringify } from './bounded-page.ts'

const stringify = pageStringify(['things'], JSON.stringify)
const places = ['[1]', '[2]', '[3]']

function sent(size: number, page: { offset?: number; limit?: number; hasMore: boolean }) {
  const { hasMore, ...offset } = page
  const things = places.map(() => 'x'.repeat(size))
  const next = new NextCursor((place) => `cursor of ${place}`, { places, hasMore })
  return JSON.parse(stringify({ total: 9, limit: 3, ...offset, things, next })) as {
    limit: number
    next?: string
    things: string[]
  }
}

test('a page that is too large continues after the last row that is sent', () => {
  const page = sent(MAX_PAGE_BYTES / 2.5, { hasMore: false })
  expect(page.things).toHaveLength(2)
  expect(page).toMatchObject({ limit: 2, next: 'cursor of [2]' })
})

test('a page that fits has a cursor if others follow', () => {
  expect(sent(1, { offset: 0, hasMore: true })).toMatchObject({ limit: 3, next: 'cursor of [3]' })
  expect(sent(1, { offset: 6, hasMore: false })).not.toHaveProperty('next')
})

test('the last page of a cursor keeps its limit, because it was not cut', () => {
  expect(sent(1, { limit: 5, hasMore: false })).toMatchObject({ limit: 5, things: ['x', 'x', 'x'] })
})
