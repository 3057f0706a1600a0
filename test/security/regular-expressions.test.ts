/**
 * No text makes a regular expression of the product slow. One that `recheck` finds slow, or cannot decide, is rewritten, or stands here with
 * the bound of its input.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { AT_LENGTH } from '../harness/length.ts'
import { productSources } from '../architecture/source-imports.ts'
import { describeSlowness, expressionsOf } from './regular-expressions.ts'

/** Fewer expressions than this mean that the checker has gone blind. */
const MIN_EXPRESSIONS = 200
/** About 220 expressions, half of them decided in milliseconds. */
const TREE_TIMEOUT_MS = 600_000

/** Reviewed: path and expression, and why its input is bounded. */
const REVIEWED: readonly { path: string; source: string; because: string }[] = [
  {
    path: 'worker/isolation/staging.ts',
    source: String.raw`^(?:import|export) (?!type )[^']*? from '([.#][^']*\.ts)'`,
    because: 'reads the source files of the worker itself, at its start',
  },
]

/** Reviewed: expressions that are put together when the program runs. */
const COMPUTED: readonly { path: string; text: string; because: string }[] = [
  {
    path: 'cli/shared/output.ts',
    text: "`(\\\\u001B\\\\[(?:${Object.values(CODES).flat().join('|')})m)`",
    because: 'alternatives of fixed numbers, without repetition',
  },
  {
    path: 'api/identity/identity.ts',
    text: 'pattern',
    because: 'SKEIN_PASSWORD_PATTERN is written by the operator; passwords have a largest length',
  },
  {
    path: 'api/identity/mail/compose.ts',
    text: '`.{${BASE64_LINE_CHARS}}(?=.)`',
    because: 'a fixed number of characters, without a choice',
  },
  {
    path: 'api/identity/pats/secret.ts',
    text: '`^${PAT_PREFIX}([A-Za-z0-9_-]{${PART_CHARS}})_[A-Za-z0-9_-]{${PART_CHARS}}$`',
    because: 'a fixed number of characters, without a choice',
  },
  {
    path: 'cli/shared/config-file.ts',
    text: '`^\\\\s*${key}\\\\s*=`',
    because: 'the key is one of a list of words, and each line is looked at from its beginning',
  },
  {
    path: 'console/vite.config.ts',
    text: "`fetchCompile\\\\(new URL\\\\('\\\\./${TRANSPILER}\\\\.(core2?\\\\.wasm)', import\\\\.meta\\\\.url\\\\)\\\\)`",
    because: 'reads a file of a locked package when the console is built',
  },
  {
    path: 'http/answers/not-found.ts',
    text: '`^${source}/?$`',
    because: 'segments of a route with a separator between them that they cannot hold; a path has 16 KiB at most',
  },
]

/** Expressions that were decided before: the gate decides new ones, and `npm run suites -- fuzz` decides all of them again. */
const DECIDED = join(import.meta.dirname, 'decided-expressions.txt')

const lineOf = ({ source, flags }: { source: string; flags: string }) => JSON.stringify(`/${source}/${flags}`)

const found = productSources().map(expressionsOf)
const expressions = found.flatMap((file) => file.expressions)

describe('regular expressions of the product', () => {
  it('none is slow for any text', { timeout: TREE_TIMEOUT_MS }, async () => {
    const isReviewed = ({ path, source }: { path: string; source: string }) =>
      REVIEWED.some((one) => one.path === path && one.source === source)
    const distinct = new Map(expressions.filter((one) => !isReviewed(one)).map((one) => [lineOf(one), one]))
    const decided = AT_LENGTH ? new Set<string>() : new Set(readFileSync(DECIDED, 'utf8').split('\n'))
    const slow = [...distinct].flatMap(([line, one]) => {
      const fault = decided.has(line) ? undefined : describeSlowness(one)
      return fault === undefined ? [] : [`${one.place} ${line} ${fault}`]
    })
    expect(slow).toEqual([])
    // The decisions of a minute; `vitest -u` adds what was decided just now.
    await expect([...distinct.keys()].toSorted().join('\n')).toMatchFileSnapshot(DECIDED)
  })

  it('are found in plausible number, and every reviewed one', () => {
    expect(expressions.length).toBeGreaterThan(MIN_EXPRESSIONS)
    const gone = REVIEWED.filter(
      (one) => !expressions.some(({ path, source }) => path === one.path && source === one.source),
    )
    expect(gone).toEqual([])
  })

  it('include every expression that is built at run time', () => {
    const computed = found.flatMap((file) => file.computed).map(({ path, text }) => ({ path, text }))
    const byPlace = (left: { path: string }, right: { path: string }) => left.path.localeCompare(right.path)
    expect(computed.toSorted(byPlace)).toEqual(COMPUTED.map(({ path, text }) => ({ path, text })).toSorted(byPlace))
  })

  it.each([
    ['a literal', String.raw`const trim = (text: string) => text.replace(/[ \t]+$/, '')`],
    ['a number with two ways to read its digits', String.raw`const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/`],
    ['an exponential one', String.raw`const WORDS = /^(\w+\s?)+$/`],
    ['a constructor', String.raw`const LIST = new RegExp('^(a|a)*$', 'i')`],
    ['a call of the constructor', 'const LIST = RegExp(`^(a|a)*$`)'],
    ['the pattern of a schema', String.raw`const Name = Type.String({ pattern: '^(\\w+,?)*$' })`],
  ])('are reported if slow: %s', (_what, text) => {
    const planted = expressionsOf({ path: 'core/planted.ts', text }).expressions
    expect(planted).toHaveLength(1)
    expect(planted.map(describeSlowness)).toEqual([expect.stringMatching(/polynomial|exponential/)])
  })

  it('are reported if undecidable or computed', () => {
    expect(describeSlowness({ source: '[\\p{L}--[a-z]]+', flags: 'v' })).toMatch(/cannot be decided/)
    expect(expressionsOf({ path: 'core/planted.ts', text: 'const WORD = new RegExp(word)' }).computed).toHaveLength(1)
  })
})
