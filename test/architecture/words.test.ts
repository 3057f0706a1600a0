/** Words that the product does not use, with their replacements, over names, messages and documents (docs/glossary.md). */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseSync } from 'oxc-parser'
import { expect, test } from 'vitest'
import { DOCUMENT_WORDS, NAMES, PLAIN_WORDS } from './words.ts'
import type { Replaced } from './words.ts'

const ROOT = join(import.meta.dirname, '..', '..')
/** Without tests, whose titles are older than the list. */
const PRODUCT = '{api,cli,console,core,manager,programs,proxy,queues,tools,worker}/**/*.{ts,tsx}'
const CODE = '{api,bench,cli,console,core,examples,manager,programs,proto,proxy,queues,test,tools,worker}/**/*.{ts,tsx}'
/** Only their comments are checked. */
const TESTS = '{bench,examples,test}/**/*.{ts,tsx}'
/** What users read. Decisions keep the words of their time; the tables of clauses quote names of tests. */
const DOCUMENTS = ['README.md', 'docs/*.md', 'docs/guides/*.md', '*/README.md']

type Line = { text: string; number: number }

function linesOf(path: string): Line[] {
  return readFileSync(join(ROOT, path), 'utf8')
    .split('\n')
    .map((text, index) => ({ text, number: index + 1 }))
}

/** The comments of a file, each with the number of its first line. */
function commentsOf(path: string): Line[] {
  const source = readFileSync(join(ROOT, path), 'utf8')
  return parseSync(path, source).comments.map(({ value, start }) => ({
    text: value,
    number: source.slice(0, start).split('\n').length,
  }))
}

function findIn(
  patterns: string | string[],
  words: readonly Replaced[],
  leaveOut: RegExp,
  partsOf: (path: string) => Line[] = linesOf,
): string[] {
  return globSync(patterns, { cwd: ROOT })
    .filter((path) => !leaveOut.test(path))
    .toSorted()
    .flatMap((path) =>
      partsOf(path).flatMap(({ text, number }) =>
        words
          .filter(({ word }) => word.test(text))
          .map(({ word, use }) => `${path}:${number}: ${word.source}: write ${use}`),
      ),
    )
}

test('no name is a word that the field does not use', () => {
  expect(findIn(CODE, NAMES, /node_modules|\/gen\/|architecture\/words/)).toEqual([])
})

test('no document uses a word of our own', () => {
  expect(findIn(DOCUMENTS, DOCUMENT_WORDS, /node_modules|glossary|spec-gaps|mqtt-clauses/)).toEqual([])
})

test('comments, messages and documents name who acts', () => {
  const untested = /node_modules|\/gen\/|\.test\.ts$|glossary|spec-gaps|mqtt-clauses/
  expect(findIn([PRODUCT, ...DOCUMENTS], PLAIN_WORDS, untested)).toEqual([])
})

test('comments of tests and benchmarks name who acts', () => {
  expect(findIn(TESTS, PLAIN_WORDS, /node_modules|architecture\/words/, commentsOf)).toEqual([])
})

test('each list finds what it is for', () => {
  expect(PLAIN_WORDS.filter(({ word, example }) => !word.test(example))).toEqual([])
  expect(NAMES.filter(({ word, example }) => !word.test(example))).toEqual([])
  expect(DOCUMENT_WORDS.filter(({ word, example }) => !word.test(example))).toEqual([])
})
