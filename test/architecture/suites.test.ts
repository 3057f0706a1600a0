// docs/guides/testing.md: the table of long suites, and the records that may replace a run
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { MAX_RECORD_DAYS, digestsAt, headOf, isSuiteDue, trackedFiles, writeRecord } from '../suites/records.ts'
import type { SuiteRecord } from '../suites/records.ts'
import { PROJECTS as projects } from '../suites/projects.ts'
import { GATE_ALONE, HARNESS, RUN_AGAIN, SUITE_NAMES, suiteOf } from '../suites/table.ts'
import type { LongSuite } from '../suites/table.ts'
import { MAX_FILES, commandOf, runsAgain } from '../suites/unsteady.ts'
import { ROOT, importsOf, readSources } from './source-imports.ts'

const isIn = (path: string, guarded: readonly string[]) =>
  guarded.some((one) => path === one || path.startsWith(`${one}/`))

/** The test files of a suite: those that its runs name, and those of its projects. */
function testFilesOf(suite: LongSuite): string[] {
  return suite.runs.flatMap(({ command }) => {
    const named = command.filter((part) => part.startsWith('test/') && !part.endsWith('.sh'))
    const project = projects.find(({ test }) => test.name === command[command.indexOf('--project') + 1])
    const patterns = command.includes('--project') ? (project?.test.include ?? []) : []
    return sources
      .map(({ path }) => path)
      .filter(
        (path) =>
          named.some((one) => path === one || path.startsWith(`${one}/`)) ||
          patterns.some((pattern) => new RegExp(regularExpressionOf(pattern)).test(path)),
      )
  })
}

/** Of the few forms that vitest.config.ts has: `**` between folders, `*` in a name, `{a,b}`. */
function regularExpressionOf(pattern: string): string {
  const text = pattern
    .replaceAll('.', '\\.')
    .replaceAll(/\{([^}]+)\}/g, (_whole, names: string) => `(${names.replaceAll(',', '|')})`)
    .replaceAll('**/', '(.+/)?')
    .replaceAll(/(?<![.)])\*/g, '[^/]*')
  return `^${text}$`
}

const sources = readSources()
const importsByFile = new Map(
  sources.map((source) => [source.path, importsOf(source).imports.filter(({ kind }) => kind === 'ours')]),
)

function closureOf(files: readonly string[]): Set<string> {
  const reached = new Set(files)
  for (const file of reached) for (const { to } of importsByFile.get(file) ?? []) reached.add(to)
  return reached
}

describe('the table of suites', () => {
  it.each(SUITE_NAMES)('%s guards what its tests and their programs import', (name) => {
    const suite = suiteOf(name)
    const tests = testFilesOf(suite)
    expect(tests.length).toBeGreaterThan(0)
    const outside = [...closureOf([...tests, ...suite.programs])].filter(
      (path) => !isIn(path, [...suite.paths, ...HARNESS]),
    )
    expect(outside).toEqual([])
  })

  it('names paths that exist, each once', () => {
    for (const name of SUITE_NAMES) {
      const { paths, programs } = suiteOf(name)
      const all = [...paths, ...HARNESS]
      expect(new Set(all).size, name).toBe(all.length)
      expect(
        [...all, ...programs].filter((path) => !existsSync(join(ROOT, path))),
        name,
      ).toEqual([])
    }
    expect(RUN_AGAIN.filter((path) => !existsSync(join(ROOT, path)))).toEqual([])
  })

  it('every project is run by the gate or by one suite', () => {
    const long = projects.map(({ test }) => test.name).filter((name) => name.startsWith('long:'))
    expect(long.toSorted()).toEqual(
      SUITE_NAMES.map((name) => `long:${name}`)
        .filter((name) => suiteOf(name.slice(5) as 'fuzz').runs.some(({ command }) => command.includes(name)))
        .toSorted(),
    )
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      scripts: Record<string, string>
    }
    expect(scripts['test']).toBe("vitest run --project '!long:*'")
  })

  it('every test is of a project', () => {
    const patterns = projects.flatMap(({ test }) => test.include.map((one) => new RegExp(regularExpressionOf(one))))
    const tests = sources.map(({ path }) => path).filter((path) => path.endsWith('.test.ts'))
    expect(tests.length).toBeGreaterThan(400)
    expect(tests.filter((path) => !patterns.some((pattern) => pattern.test(path)))).toEqual([])
  })

  it.skipIf(trackedFiles(ROOT) === undefined)(
    'every file is guarded by a suite, or has a reason to be left to the gate',
    () => {
      const guarded = SUITE_NAMES.flatMap((name) => suiteOf(name).paths)
      const alone = Object.keys(GATE_ALONE)
      const files = trackedFiles(ROOT) ?? []
      expect(files.length).toBeGreaterThan(1000)
      expect(files.filter((path) => !isIn(path, [...guarded, ...HARNESS, ...alone]))).toEqual([])
    },
  )
})

describe('failed tests, once more and alone', () => {
  const inGate = (name: string, rest = ' > a > b: expected 1') => `failed in npm test: test/${name}.test.ts${rest}`

  it('run by suite, each file once', () => {
    const browser = 'failed in long suites: browser: test/console/a.test.ts > c: test/other.test.ts > d'
    const failures = [inGate('mqtt/a'), inGate('mqtt/a', ': a hook failed'), browser, inGate('b')]
    expect(runsAgain(failures)).toEqual([
      {
        suite: undefined,
        files: ['test/mqtt/a.test.ts', 'test/b.test.ts'],
        lines: [failures[0], failures[1], failures[3]],
      },
      { suite: 'browser', files: ['test/console/a.test.ts'], lines: [browser] },
    ])
    expect(runsAgain(failures).map(commandOf)).toEqual([
      ['npm', 'test', '--', '--maxWorkers=1', 'test/mqtt/a.test.ts', 'test/b.test.ts'],
      'npm run --silent suites -- browser -- --passWithNoTests --maxWorkers=1 test/console/a.test.ts'.split(' '),
    ])
  })

  it.each([
    ['there are many', Array.from({ length: MAX_FILES + 1 }, (_, index) => inGate(`a${index}`))],
    ['an error is of no test', [inGate('a'), 'failed in npm test: outside of a test: boom']],
    ['a suite did not come to an end', ['failed in long suites: browser: did not come to an end (status 1)']],
    ['a preparation failed', ['failed in long suites: clients: test/openapi/install.sh failed']],
    ['a name is no file', ['failed in npm test: test/../a;b.test.ts > a: b']],
  ])('do not run when %s', (_name, failures) => {
    expect(runsAgain(failures)).toEqual([])
  })
})

describe('a record of a suite', () => {
  const PATHS = ['core', 'package-lock.json']
  const NOW = Date.parse('2026-03-10T12:00:00Z')
  let root: string

  const git = (...args: string[]) =>
    execFileSync('git', ['-C', root, '-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], {
      stdio: 'ignore',
    })
  const write = (path: string, text: string) => {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  const commit = (path: string, text: string) => {
    write(path, text)
    git('add', '-A')
    git('commit', '-m', `change ${path}`)
  }
  const folder = () => ({ root, records: join(root, 'records') })
  const verdict = (now = NOW, paths = PATHS) => isSuiteDue(folder(), 'browser', paths, now)
  const valid = (changes: Partial<SuiteRecord> = {}): SuiteRecord => {
    const head = headOf(root) ?? ''
    return {
      suite: 'browser',
      commit: head,
      finished_at: '2026-03-09T12:00:00.000Z',
      digests: digestsAt(root, head, PATHS) ?? {},
      summary: { passed: 27, failed: 0, skipped: 0, seconds: 180 },
      ...changes,
    }
  }
  /** As a developer does: the run, then the record in a commit of its own. */
  const record = (changes: Partial<SuiteRecord> = {}) => {
    writeRecord(folder(), valid(changes))
    git('add', '-A')
    git('commit', '-m', 'record')
  }

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'skein-records-'))
    git('init', '--quiet')
    write('package-lock.json', '{}')
    write('core/a/b.ts', '1')
    commit('docs/a.md', 'a')
  })
  afterEach(() => rmSync(root, { recursive: true, force: true }))

  it('leaves the suite out while nothing that it guards has changed', () => {
    expect(verdict()).toEqual({ isDue: true, why: 'no record' })
    record()
    commit('docs/a.md', 'b')
    expect(verdict()).toMatchObject({ isDue: false, why: expect.stringContaining('27 passed in 180 s') as string })
  })

  it.each([
    ['a guarded file has changed', () => commit('core/a/b.ts', '2')],
    ['a file was added to a guarded folder', () => commit('core/a/c.ts', '1')],
    ['a guarded file is gone', () => (git('rm', '-q', '-r', 'core'), git('commit', '-m', 'remove'))],
    ['the lock file has changed', () => commit('package-lock.json', '{"a":1}')],
    ['a guarded file is changed and not committed', () => write('core/a/b.ts', '2')],
    ['a guarded folder has a file that is not committed', () => write('core/new.ts', '2')],
    [
      'the commit is not an ancestor',
      () => {
        git('checkout', '-q', '--orphan', 'other')
        git('commit', '-m', 'another history')
      },
    ],
  ])('counts no more when %s', (_what, change) => {
    record()
    expect(verdict().isDue).toBe(false)
    change()
    expect(verdict().isDue).toBe(true)
  })

  it.each([
    ['of a run that failed', { summary: { passed: 26, failed: 1, skipped: 0, seconds: 1 } }],
    ['of a run that skipped tests', { summary: { passed: 26, failed: 0, skipped: 1, seconds: 1 } }],
    ['of a run without tests', { summary: { passed: 0, failed: 0, skipped: 0, seconds: 1 } }],
    ['of another suite', { suite: 'cluster' }],
    ['of an unknown commit', { commit: '0123456789012345678901234567890123456789' }],
    ['of something that is no commit', { commit: '--all' }],
    ['without a time', { finished_at: 'yesterday' }],
    ['of a time to come', { finished_at: '2026-03-11T12:00:00Z' }],
    ['with a digest that its commit does not have', { digests: { core: 'a'.repeat(40), 'package-lock.json': 'b' } }],
    ['with other paths', { digests: { core: 'a'.repeat(40) } }],
  ])('counts not when it is %s', (_what, changes) => {
    writeRecord({ root, records: join(root, 'records') }, valid())
    expect(verdict().isDue).toBe(false)
    writeFileSync(join(root, 'records', 'browser.json'), JSON.stringify(valid(changes)))
    expect(verdict().isDue).toBe(true)
  })

  it(`counts for ${MAX_RECORD_DAYS} days`, () => {
    record()
    const day = 86_400_000
    expect(verdict(NOW + 6 * day - 1).isDue).toBe(false)
    expect(verdict(NOW + 6 * day + 1)).toMatchObject({ isDue: true, why: 'the record is older than 7 days' })
  })

  it('counts not outside of a history, nor when it cannot be read', () => {
    record()
    rmSync(join(root, '.git'), { recursive: true })
    expect(verdict().isDue).toBe(true)
    writeFileSync(join(root, 'records', 'browser.json'), 'null')
    expect(verdict().isDue).toBe(true)
  })
})
