/** No function of the product has more than 70 lines, except in the files that `.oxlintrc.json` names: that list only becomes shorter. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')
const RULE = 'max-lines-per-function'

type Override = { files: string[]; rules: Record<string, unknown> }

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'lint-'))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

test('each file that may have long functions has one', () => {
  const { overrides } = JSON.parse(readFileSync(join(ROOT, '.oxlintrc.json'), 'utf8')) as { overrides: Override[] }
  const [limited, exceptions] = overrides.filter(({ rules }) => rules[RULE] !== undefined)
  expect(exceptions?.rules[RULE]).toBe('off')
  const named = (exceptions?.files ?? []).filter((file) => !file.includes('*'))
  expect(named.length).toBeGreaterThan(0)
  const config = join(folder, 'oxlintrc.json')
  writeFileSync(config, JSON.stringify({ categories: { correctness: 'off' }, rules: { [RULE]: limited?.rules[RULE] } }))
  const found = lint(config, named)
  expect(named.filter((file) => !found.has(file))).toEqual([])
})

/** The files with an error. */
function lint(config: string, files: readonly string[]): Set<string> {
  const args = ['node_modules/oxlint/bin/oxlint', '-c', config, '--format', 'json', ...files]
  try {
    execFileSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8', stdio: 'pipe' })
    return new Set()
  } catch (error) {
    const { diagnostics } = JSON.parse((error as { stdout: string }).stdout) as { diagnostics: { filename: string }[] }
    return new Set(diagnostics.map(({ filename }) => filename))
  }
}
