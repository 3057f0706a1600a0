import fc from 'fast-check'
import { expect, test } from 'vitest'
import { nest, presentTree } from './tree.ts'
import type { Nested } from './tree.ts'

test('a group is nested in its parent, or at the top when the parent is not listed', () => {
  const groups = [
    { key: 4, parentGroupKey: 3 },
    { key: 1, parentGroupKey: null },
    { key: 2, parentGroupKey: 1 },
    { key: 5, parentGroupKey: 1 },
    { key: 3, parentGroupKey: 9 },
  ]
  expect(presentTree(nest(groups), ({ key }) => ({ key }))).toEqual([
    {
      key: 1,
      children: [
        { key: 2, children: [] },
        { key: 5, children: [] },
      ],
    },
    { key: 3, children: [{ key: 4, children: [] }] },
  ])
})

test('nesting contains every group exactly once', () => {
  const forest = fc
    .array(fc.nat(), { maxLength: 60 })
    .map((parents) =>
      parents.map((parent, key) => ({ key, parentGroupKey: parent % (key + 1) === key ? null : parent % (key + 1) })),
    )
  const keysOf = (nodes: readonly Nested<{ key: number }>[]): number[] =>
    nodes.flatMap(({ item, children }) => [item.key, ...keysOf(children)])
  fc.assert(
    fc.property(forest, (groups) => {
      expect(keysOf(nest(groups)).toSorted((a, b) => a - b)).toEqual(groups.map(({ key }) => key))
    }),
  )
})
