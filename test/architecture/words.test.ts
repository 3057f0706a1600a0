/** Words that the product does not use, with their replacements, over names, messages, titles of tests and documents (docs/glossary.md). */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Visitor, parseSync } from 'oxc-parser'
import type { Expression } from 'oxc-parser'
import { expect, test } from 'vitest'
import { FOLDERS } from './rooms.ts'
import { DOCUMENT_WORDS, NAMES, PLAIN_WORDS } from './words.ts'
import type { Replaced } from './words.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const foldersBut = (...names: string[]) => FOLDERS.filter((folder) => !names.includes(folder)).join(',')
const PRODUCT = `{${foldersBut('bench', 'proto', 'test')}}/**/*.{ts,tsx}`
const CODE = `{${foldersBut()},examples}/**/*.{ts,tsx}`
/** Only their comments are checked. */
const TESTS = '{bench,examples,test}/**/*.{ts,tsx}'
/** Files with tests: in `test/` some share them. */
const TITLED = [`{${foldersBut('bench', 'test')}}/**/*.test.{ts,tsx}`, 'test/**/*.ts']
/** Fewer would mean that the titles are not found. */
const TITLES_AT_LEAST = 3_000
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

/** The function that a call ends at: `test` of `test.each(rows)(title, ...)`. */
function calledName(callee: Expression): string | undefined {
  if (callee.type === 'Identifier') return callee.name
  if (callee.type === 'MemberExpression') return calledName(callee.object)
  return callee.type === 'CallExpression' ? calledName(callee.callee) : undefined
}

/** The titles of the tests and groups in a source, as they are written, each with the number of its line. */
function titlesIn(path: string, source: string): Line[] {
  const titles: Line[] = []
  const { program } = parseSync(path, source)
  new Visitor({
    CallExpression: ({ callee, arguments: [title] }) => {
      if (!['describe', 'it', 'test'].includes(calledName(callee) ?? '')) return
      if (title?.type !== 'TemplateLiteral' && !(title?.type === 'Literal' && typeof title.value === 'string')) return
      titles.push({
        text: source.slice(title.start + 1, title.end - 1),
        number: source.slice(0, title.start).split('\n').length,
      })
    },
  }).visit(program)
  return titles
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

test('names use the words of the field', () => {
  expect(findIn(CODE, NAMES, /node_modules|\/gen\/|architecture\/words/)).toEqual([])
})

test('documents use the words of the field', () => {
  expect(findIn(DOCUMENTS, DOCUMENT_WORDS, /node_modules|glossary|spec-gaps|mqtt-clauses/)).toEqual([])
})

test('comments, messages and documents use plain words', () => {
  const untested = /node_modules|\/gen\/|\.test\.ts$|glossary|spec-gaps|mqtt-clauses/
  expect(findIn([PRODUCT, ...DOCUMENTS], PLAIN_WORDS, untested)).toEqual([])
})

test('comments of tests and benchmarks use plain words', () => {
  expect(findIn(TESTS, PLAIN_WORDS, /node_modules|architecture\/words/, commentsOf)).toEqual([])
})

test('titles of tests use plain words', () => {
  let count = 0
  const titlesOf = (path: string) => {
    const titles = titlesIn(path, readFileSync(join(ROOT, path), 'utf8'))
    count += titles.length
    return titles
  }
  expect(findIn(TITLED, [...PLAIN_WORDS, ...DOCUMENT_WORDS], /node_modules/, titlesOf)).toEqual([])
  expect(count).toBeGreaterThan(TITLES_AT_LEAST)
})

test('titles are found in every form, and other strings are not', () => {
  const source = `
    describe('whoever reads', () => {
      it.each([['somebody']])(\`%s is told\`, () => expect('told'))
      test.skipIf(isAbsent)('made anew', { timeout: 1 }, run)
      other('in vain')
    })`
  const titles = titlesIn('planted.test.ts', source)
  expect(titles.map(({ text }) => text)).toEqual(['whoever reads', '%s is told', 'made anew'])
  expect(titles.map(({ number }) => number)).toEqual([2, 3, 4])
  expect(titles.every(({ text }) => PLAIN_WORDS.some(({ word }) => word.test(text)))).toBe(true)
})

test('each list finds its examples', () => {
  expect(PLAIN_WORDS.filter(({ word, example }) => !word.test(example))).toEqual([])
  expect(NAMES.filter(({ word, example }) => !word.test(example))).toEqual([])
  expect(DOCUMENT_WORDS.filter(({ word, example }) => !word.test(example))).toEqual([])
})
