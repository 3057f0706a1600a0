/**
 * The recipes of docs/guides/modules: their files and lines, run as the guide has them. A recipe whose compiler is not
 * installed is skipped, and its name says what is missing. `install.sh` installs what package registries have.
 */
import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { processEnvironment } from '#core/config/index.ts'
import { GUIDES, readGuide } from './guide.ts'
import type { Section, Step } from './guide.ts'
import { PATH, TOOLS, missingFor } from './toolchains.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024
/** A line: cargo downloads and compiles packages. */
const LINE_DEADLINE_MS = 300_000
const TRY = 'skein modules try '
const LANGUAGES = ['go', 'rust', 'c', 'assemblyscript', 'zig', 'javascript', 'python']
const run = promisify(execFile)

let home: string
beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), 'skein-recipes-'))
  mkdirSync(join(home, 'bin'))
  symlinkSync(join(ROOT, 'cli', 'skein'), join(home, 'bin', 'skein'))
})
afterAll(() => rmSync(home, { recursive: true, force: true }))

test('the table of languages has every guide', () => {
  const guides = readdirSync(GUIDES).filter((file) => file !== 'README.md')
  expect(guides.toSorted()).toEqual(LANGUAGES.map((name) => `${name}.md`).toSorted())
  for (const name of LANGUAGES) expect(readFileSync(join(GUIDES, 'README.md'), 'utf8')).toContain(`](${name}.md)`)
})

test('the versions that the guides install are those that are tested', () => {
  const tested = ['npm/package.json', 'requirements.txt', 'install.sh'].map((file) =>
    readFileSync(join(import.meta.dirname, file), 'utf8').replaceAll('": "', '@'),
  )
  const named = LANGUAGES.flatMap((name) => readGuide(name).installLines).flatMap((line) =>
    line.split(' ').filter((word) => /[a-z]@\d|==|^wasm32/.test(word)),
  )
  expect(named.length).toBeGreaterThan(6)
  expect(named.filter((word) => !tested.some((text) => text.includes(word)))).toEqual([])
})

/** Without Rust, whose targets come from a server of its own, and Go, whose version is that of the machine. */
test.runIf(processEnvironment()['CI'] === 'true')('compilers are installed where tests decide', () => {
  const lines = ['c', 'assemblyscript', 'zig', 'javascript', 'python']
    .flatMap((name) => readGuide(name).sections)
    .flatMap((section) => section.lines)
  expect(missingFor(lines.map(({ command }) => command))).toEqual([])
})

describe.each(LANGUAGES)('%s', (language) => {
  const { sections } = readGuide(language)
  for (const section of sections) {
    const missing = missingFor(section.lines.map(({ command }) => command))
    const name = missing.length === 0 ? section.title : `${section.title} (not installed: ${missing.join(', ')})`
    test.skipIf(missing.length > 0)(name, () => follow(language, section))
  }
})

/** A folder of its own for each section: it must be complete. */
async function follow(language: string, section: Section): Promise<void> {
  const folder = mkdtempSync(join(home, `${language}-`))
  if (TOOLS !== undefined) symlinkSync(join(TOOLS, 'node_modules'), join(folder, 'node_modules'))
  // The message and the interfaces that every guide refers to.
  const shared = readGuide('README').sections.flatMap(({ steps }) => steps)
  for (const step of [...shared, ...section.steps]) await take(folder, step)
  expect(section.lines.some(({ expected }) => expected !== undefined)).toBe(true)
}

async function take(folder: string, step: Step): Promise<void> {
  if (step.kind === 'file') {
    mkdirSync(dirname(join(folder, step.path)), { recursive: true })
    writeFileSync(join(folder, step.path), step.content)
    return
  }
  const { stdout } = await run('bash', ['-e', '-c', step.command], {
    cwd: folder,
    env: { ...processEnvironment(), PATH: `${join(home, 'bin')}:${PATH}`, ZIG_GLOBAL_CACHE_DIR: join(home, 'zig') },
    timeout: LINE_DEADLINE_MS,
    maxBuffer: MAX_OUTPUT_BYTES,
  }).catch((error: { stdout?: string; stderr?: string; message: string }) => {
    // A run that fails as the guide says has a report too.
    if (step.command.startsWith(TRY) && error.stdout?.startsWith('{') === true) return { stdout: error.stdout }
    throw new Error(`${step.command}\n${error.message}\n${error.stdout ?? ''}`)
  })
  if (step.command.startsWith(TRY)) expect(shownBy(stdout), step.command).toContain(step.expected)
}

type Run = {
  results: unknown
  stdout: string
  reason?: string
  error?: string
  publications: { topic: string; payload: unknown; refused?: string }[]
}

/** What a run returned, wrote and published, as a terminal shows it. */
function shownBy(stdout: string): string {
  const { runs } = JSON.parse(stdout) as { runs: Run[] }
  return runs
    .flatMap(({ results, stdout: written, reason = '', error = '', publications }) => [
      JSON.stringify(results),
      written,
      `${reason}: ${error}`,
      ...publications.map(({ topic, payload, refused }) => `${topic}: ${JSON.stringify(payload)}${refused ?? ''}`),
    ])
    .join('\n')
}
