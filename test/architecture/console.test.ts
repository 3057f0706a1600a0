// docs/guides/console.md: what the console sends is what the API declares, and every control is pressed in a browser
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { consoleFiles, controlsOfTheConsole } from '../console/control-sites.ts'

const FEWEST_FILES = 60
/** The engine of a trial has a frame without an origin; the others are the ways to the API. */
const MAY_FETCH = ['api/call.ts', 'api/event-stream.ts', 'api/guides.ts', 'api/prepared.ts', 'try/sandbox.ts']

test('no value of the console is cast past the types of the API', () => {
  const files = consoleFiles()
  expect(files.length).toBeGreaterThan(FEWEST_FILES)
  const casts = files.flatMap(({ path, text }) =>
    [...text.matchAll(/\bas (?:never|any)\b|@ts-(?:expect-error|ignore|nocheck)/g)].map(
      ({ 0: cast, index }) => `${path}:${text.slice(0, index).split('\n').length} ${cast}`,
    ),
  )
  expect(casts).toEqual([])
})

test('the console sends requests through its few files that do', () => {
  const fetching = consoleFiles().filter(
    ({ path, text }) => !path.endsWith('.test.ts') && /(?<![`\w.])fetch\(/.test(text.replaceAll(/`[^`]*`/g, '')),
  )
  expect(fetching.map(({ path }) => path).toSorted()).toEqual(MAY_FETCH)
})

test('a browser test presses every control of the console that changes something', () => {
  const tests = readFileSync(join(import.meta.dirname, '..', 'console', 'controls.test.ts'), 'utf8')
  const pressed = [...tests.matchAll(/'(\S+\.tsx? (?:POST|PUT|PATCH|DELETE) \/\S*)'/g)].map(([, one = '']) => one)
  expect([...new Set(pressed)].toSorted()).toEqual([...new Set(controlsOfTheConsole())])
})

test('the console reads and writes JSON in one place, which keeps the digits of integers', () => {
  const others = consoleFiles().filter(
    ({ path, text }) =>
      !/^(?:try|api\/json)|\.test\.ts$/.test(path) &&
      /\bJSON\.(?:parse|stringify)\(|\.json\(\)/.test(text.replaceAll(/`[^`]*`/g, '')),
  )
  expect(others.map(({ path }) => path)).toEqual([])
})
