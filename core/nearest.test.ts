import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { nearestName } from './nearest.ts'

const KNOWN = ['limit', 'offset', 'status', 'schedule', 'image_url', 'max_retries', 'to', 'tz', 'tags']

describe('nearestName', () => {
  it.each([
    ['shedule', 'schedule'],
    ['limt', 'limit'],
    ['stauts', 'status'],
    ['maxRetries', 'max_retries'],
    ['image-url', 'image_url'],
    ['imagurl', 'image_url'],
    ['TAGS', 'tags'],
    ['tag', 'tags'],
  ])('%s is %s', (name, known) => expect(nearestName(name, KNOWN)).toBe(known))

  it.each(['tx', 'colour', 'lt', '', 'schedules_of_all', 'x'.repeat(100_000), '__proto__', 'constructor'])(
    '%s is near to no known name',
    (name) => expect(nearestName(name, KNOWN)).toBeUndefined(),
  )

  it('finds every known name, and each with one missing letter', () => {
    fc.assert(
      fc.property(
        fc.array(fc.stringMatching(/^[a-z]{4,20}$/), { minLength: 1, maxLength: 20 }),
        fc.nat(),
        (known, at) => {
          const name = known[at % known.length] ?? ''
          expect(nearestName(name, known)).toBe(name)
          expect(nearestName(name.slice(1), known)).toBeDefined()
        },
      ),
    )
  })

  it('takes little time for the most expensive names', () => {
    const known = Array.from({ length: 60 }, (_, index) => `${'a'.repeat(22)}${String(index).padStart(4, '0')}`)
    const costs = Array.from({ length: 5 }, () => {
      const started = performance.now()
      for (let count = 0; count < 50; count++) nearestName(`${'a'.repeat(24)}b${count % 10}`, known)
      return performance.now() - started
    })
    expect(Math.min(...costs)).toBeLessThan(100)
  })
})
