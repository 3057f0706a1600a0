/** Every family of operations in the journal says who sees its records: without that, only administrators of the domain do. */
import { expect, it } from 'vitest'
import { DEVICE_TYPES, FAMILIES } from '#api/identity/journal/visibility.ts'
import { productSources } from './source-imports.ts'

/** Their records belong to a domain, and only its administrators see them. */
const OF_ADMINISTRATORS = ['bootstrap', 'cert', 'provision', 'subscription']
/** Their records belong to a user or to the platform. */
const OF_NO_DOMAIN = ['api_key', 'pat', 'signing_key', 'user']

const NAMED = /\boperation: ['`]([a-z_]+)\./g

it('every operation that the code records has a family that says who sees it', () => {
  const known = new Set<string>([...FAMILIES.keys(), ...DEVICE_TYPES, ...OF_ADMINISTRATORS, ...OF_NO_DOMAIN])
  const recorded = productSources().flatMap(({ path, text }) =>
    [...text.matchAll(NAMED)].map(([, family = '']) => ({ path, family })),
  )
  expect(recorded.length).toBeGreaterThan(40)
  const unknown = recorded.filter(({ family }) => !known.has(family))
  expect(
    unknown.map(({ path, family }) => `${path} records ${family}.…, which FAMILIES in visibility.ts does not name`),
  ).toEqual([])
})

it('every family that is seen by administrators alone, or by no member of a domain, is recorded', () => {
  const text = productSources()
    .map((source) => source.text)
    .join('\n')
  for (const family of [...OF_ADMINISTRATORS, ...OF_NO_DOMAIN])
    expect(text.includes(`operation: '${family}.`) || text.includes(`operation: \`${family}.`), family).toBe(true)
})
