import fc from 'fast-check'
import { expect, test } from 'vitest'
import { BLOCK_ROWS, createLabelBlocks } from './label-blocks.ts'
import type { LabelFilter, Labelled, Within } from './label-blocks.ts'

const matches = ({ status, name, tags }: LabelFilter, row: Labelled) =>
  (status === undefined || row.status === status) &&
  (name === undefined || new RegExp(name).test(row.name)) &&
  tags.every((tag) => row.tags.includes(tag))

const isWithin = ({ key, group }: Labelled, within: Within | undefined) =>
  within === undefined || within.groups.has(group) || within.keys.has(key)

const letter = fc.constantFrom('a', 'A', 'b', 'ß', '\n', '𝛑', 'é', '\u0001')
const anyRow = fc.record({
  key: fc.integer({ min: 1, max: 60 }),
  status: fc.constantFrom('enabled', 'disabled'),
  name: fc.array(letter, { maxLength: 6 }).map((letters) => letters.join('')),
  tags: fc.array(fc.constantFrom('x', 'y', 'z'), { maxLength: 3 }),
  group: fc.integer({ min: 0, max: 4 }),
})
const anyWithin = fc.option(
  fc.record({
    groups: fc.uniqueArray(fc.integer({ min: 1, max: 4 })).map((keys) => new Set(keys)),
    keys: fc.uniqueArray(fc.integer({ min: 1, max: 60 })).map((keys) => new Set(keys)),
  }),
  { nil: undefined },
)
const anyFilter = fc.record(
  {
    status: fc.constantFrom('enabled', 'disabled', 'unknown'),
    name: fc.constantFrom('[aA]', '[aA][b]', '[b][aA]', '[\\]]', '[aA][aA]'),
    tags: fc.array(fc.constantFrom('x', 'y', 'nowhere'), { maxLength: 2 }),
  },
  { requiredKeys: ['tags'] },
)

test('rows are counted as they are after any number of replacements', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.array(anyRow, { maxLength: 12 })),
      fc.array(fc.tuple(anyFilter, anyWithin)),
      async (steps, filters) => {
        const blocks = createLabelBlocks()
        const rows = new Map<number, Labelled>()
        for (const step of steps) {
          const now = new Map(step.map((row) => [row.key, row]))
          // Each third one that is named is not there any more.
          const left = [...now.values()].filter(({ key }) => key % 3 !== 0)
          blocks.replace([...now.keys()], left)
          for (const key of now.keys()) rows.delete(key)
          for (const row of left) rows.set(row.key, row)
        }
        for (const [filter, within] of filters) {
          const matching = [...rows.values()].filter((row) => matches(filter, row) && isWithin(row, within))
          const total = matching.length
          expect(await blocks.find(filter, { within })).toEqual(total === 0 ? { total, keys: [] } : { total })
          const { keys = [] } = await blocks.find(filter, { within, most: total })
          expect(new Set(keys)).toEqual(new Set(matching.map(({ key }) => key)))
          expect(keys.length).toBe(total)
        }
      },
    ),
  )
})

test('rows of many blocks are found, whichever of them changes', async () => {
  const blocks = createLabelBlocks()
  const rowOf = (key: number, name: string) => ({
    key,
    status: 'enabled',
    name,
    tags: [`tag${key % 7}`],
    group: key % 3,
  })
  const count = 2 * BLOCK_ROWS + 100
  blocks.add(Array.from({ length: count }, (_, index) => rowOf(index + 1, 'old')))
  const counted = async (filter: LabelFilter, within?: Within) => (await blocks.find(filter, { within })).total
  expect(await counted({ name: '[o][l]', tags: [] })).toBe(count)
  const changed = Array.from({ length: BLOCK_ROWS }, (_, index) => 2 * index + 1)
  blocks.replace(
    changed,
    changed.map((key) => rowOf(key, 'new')),
  )
  expect(await counted({ name: '[n]', tags: [] })).toBe(BLOCK_ROWS)
  expect(await counted({ name: '[o]', tags: [] })).toBe(count - BLOCK_ROWS)
  expect(await counted({ tags: ['tag3'] })).toBe(Math.floor((count - 3) / 7) + 1)
  expect(await counted({ tags: [] }, { groups: new Set([1]), keys: new Set([3, 4]) })).toBe(
    Math.floor((count - 1) / 3) + 2,
  )
})

test('what was removed takes no memory for ever', () => {
  const blocks = createLabelBlocks()
  const keys = Array.from({ length: BLOCK_ROWS }, (_, index) => index + 1)
  blocks.add(keys.map((key) => ({ key, status: 'enabled', name: 'a name of some length', tags: [], group: 0 })))
  const before = blocks.bytes
  blocks.replace(keys, [])
  expect(blocks.bytes).toBeLessThan(before / 100)
})
