/** docs/security.md names for each attack the test that shows what stops it: the tests are there, and none is left out. */
import { existsSync, globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const root = join(import.meta.dirname, '..', '..')
const document = readFileSync(join(root, 'docs/security.md'), 'utf8')
const named = [...document.matchAll(/`((?:test|core|x509|guests|http|postgres|infrastructure|worker)\/[^`\s]+)`/g)].map(
  ([, path]) => path ?? '',
)

describe('docs/security.md', () => {
  it.each(named)('names %s, which is there', (path) => {
    expect(path.includes('*') ? globSync(path, { cwd: root }).length > 0 : existsSync(join(root, path))).toBe(true)
  })

  it('names every test of an attack', () => {
    const tests = globSync('test/security/**/*.test.ts', { cwd: root })
    const isNamed = (test: string) =>
      named.some((path) => path === test || (path.endsWith('/') && test.startsWith(path)))
    expect(tests.filter((test) => !isNamed(test))).toEqual([])
  })
})
