/** Words that the product does not use, with their replacements, over names, messages and documents (docs/glossary.md). */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { DOCUMENT_WORDS, NAMES } from './words.ts'
import type { Replaced } from './words.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const CODE = '{api,bench,cli,core,manager,programs,proto,proxy,queues,test,tools,worker}/**/*.ts'
/** What users read. Decisions keep the words of their time; the tables of clauses quote names of tests. */
const DOCUMENTS = ['README.md', 'docs/*.md', 'docs/guides/*.md', '*/README.md']

function findIn(patterns: string | string[], words: readonly Replaced[], leaveOut: RegExp): string[] {
  return globSync(patterns, { cwd: ROOT })
    .filter((path) => !leaveOut.test(path))
    .toSorted()
    .flatMap((path) =>
      readFileSync(join(ROOT, path), 'utf8')
        .split('\n')
        .flatMap((line, index) =>
          words
            .filter(({ word }) => word.test(line))
            .map(({ word, use }) => `${path}:${index + 1}: ${word.source}: write ${use}`),
        ),
    )
}

test('no name is a word that the field does not use', () => {
  expect(findIn(CODE, NAMES, /node_modules|\/gen\/|architecture\/words/)).toEqual([])
})

test('no document uses a word of our own', () => {
  expect(findIn(DOCUMENTS, DOCUMENT_WORDS, /node_modules|glossary|spec-gaps|mqtt-clauses/)).toEqual([])
})

test('each list finds what it is for', () => {
  expect(NAMES.filter(({ word, example }) => !word.test(example))).toEqual([])
  expect(DOCUMENT_WORDS.filter(({ word, example }) => !word.test(example))).toEqual([])
})
