/** Core is what rooms share: a part with one user belongs to that room, or into that other part of core. */
import { expect, test } from 'vitest'
import { roomOf } from './check-imports.ts'
import { EXAMINERS } from './rooms.ts'
import { importsOf, readSources } from './source-imports.ts'

/** Parts with one user, and why they are in core all the same. */
const ALLOWED: Readonly<Record<string, string>> = {
  'core/built-programs.ts': 'programs/run.ts starts the build that tools/prepare.ts makes',
}

/** A folder of core, or a file outside of its folders. */
const partOf = (path: string) => path.split('/').slice(0, 2).join('/')

/** The rooms that import each part of core, and the other parts of core that do. */
function importersOf(sources: ReturnType<typeof readSources>): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>()
  const product = sources.filter(({ path }) => !EXAMINERS.has(roomOf(path).name) && !path.endsWith('.test.ts'))
  for (const { path } of product.filter((source) => source.path.startsWith('core/'))) found.set(partOf(path), new Set())
  for (const source of product)
    for (const { to } of importsOf(source).imports)
      if (to.startsWith('core/') && partOf(to) !== partOf(source.path))
        found.get(partOf(to))?.add(source.path.startsWith('core/') ? partOf(source.path) : roomOf(source.path).name)
  return found
}

const alone = (importers: Map<string, Set<string>>) =>
  [...importers].filter(([, rooms]) => rooms.size < 2).map(([part]) => part)

test('each part of core has two users: rooms, or other parts of core', () => {
  const importers = importersOf(readSources())
  expect(importers.size).toBeGreaterThan(40)
  expect(alone(importers)).toEqual(Object.keys(ALLOWED))
})

test('a part that one room imports is found', () => {
  const planted = [
    { path: 'core/planted.ts', text: 'export const x = 1' },
    { path: 'api/devices/one.ts', text: `import { x } from '#core/planted.ts'` },
    { path: 'api/devices/other.ts', text: `import { x } from '#core/planted.ts'` },
    { path: 'test/some.ts', text: `import { x } from '#core/planted.ts'` },
  ]
  expect(alone(importersOf(planted))).toEqual(['core/planted.ts'])
  const shared = [...planted, { path: 'manager/one.ts', text: `import { x } from '#core/planted.ts'` }]
  expect(alone(importersOf(shared))).toEqual([])
})
