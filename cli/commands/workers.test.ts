/** What `skein workers get all` says beside its table. */
import { expect, test } from 'vitest'
import { hintOfSharedNames } from './workers.ts'

const workers = [
  { id: 'a', name: 'pump' },
  { id: 'b', name: 'mill' },
  { id: 'c', name: 'pump' },
]

test('a list in which two workers have one name says so, with their ids', () => {
  expect(hintOfSharedNames({ total: 3, workers })).toBe(
    '2 workers are named pump (a, c): give each its own name with SKEIN_WORKER_NAME',
  )
  expect(hintOfSharedNames({ total: 2, workers: workers.slice(0, 2) })).toBeUndefined()
})
