import { expect, test } from 'vitest'
import { NextCursor, formatCursor, listingOf } from '../cursor.ts'
import { MAX_PAGE_BYTES } from '../page.ts'
import { pageStringify } from './bounded-page.ts'

const listing = listingOf('/things', {}, {})
const stringify = pageStringify(['things'], JSON.stringify)
const places = ['[1]', '[2]', '[3]']

function sent(size: number, page: { offset?: number; hasMore: boolean }) {
  const { hasMore, ...offset } = page
  const things = places.map(() => 'x'.repeat(size))
  const next = new NextCursor(listing, { places, hasMore })
  return JSON.parse(stringify({ total: 9, ...offset, limit: 3, things, next })) as {
    limit: number
    next?: string
    things: string[]
  }
}

test('a page that is too large continues after the last row that is sent', () => {
  const page = sent(MAX_PAGE_BYTES / 2.5, { hasMore: false })
  expect(page.things).toHaveLength(2)
  expect(page).toMatchObject({ limit: 2, next: formatCursor(listing, '[2]') })
})

test('a page that fits has a cursor if others follow', () => {
  expect(sent(1, { offset: 0, hasMore: true })).toMatchObject({ limit: 3, next: formatCursor(listing, '[3]') })
  expect(sent(1, { offset: 6, hasMore: false })).not.toHaveProperty('next')
})
