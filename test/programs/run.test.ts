/** `programs/run.ts` starts the build of a checkout, and its sources when there is no build of exactly these. */
import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { CURRENT_BUILD, digestOf } from '#core/built-programs.ts'
import type { CurrentBuild } from '#core/built-programs.ts'
import { commandOf, createInstallation, familyOf, startWhole } from '../harness/whole.ts'
import { ROOT } from './deployment-files.ts'

const run = promisify(execFile)
const SHOW = 'process.stdout.write(`${WHERE} ${process.argv.slice(2).join(" ")}`)'
const PREPARE_DEADLINE_MS = 120_000

let home: string
const put = (path: string, content: string) => {
  mkdirSync(dirname(join(home, path)), { recursive: true })
  writeFileSync(join(home, path), content)
}
const start = async (...args: string[]) =>
  (await run(process.execPath, [join(home, 'programs/run.ts'), ...args])).stdout
const isBuiltOf = (paths: string[]) => {
  const current: CurrentBuild = { folder: 'one', digest: digestOf(home, paths), paths }
  put(CURRENT_BUILD, JSON.stringify(current))
}

beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), 'run-'))
  for (const path of ['programs/run.ts', 'core/built-programs.ts', 'core/installation.ts'])
    put(path, readFileSync(join(ROOT, path), 'utf8'))
  put('package.json', JSON.stringify({ type: 'module', imports: { '#core/*': './core/*' } }))
  put('programs/all.ts', SHOW.replace('WHERE', '"sources"'))
  put('core/part.ts', 'export const part = 1')
  put('node_modules/.cache/programs/one/package.json', '{"type":"module"}')
  put('node_modules/.cache/programs/one/all.js', SHOW.replace('WHERE', '"build"'))
})
afterAll(() => rmSync(home, { recursive: true, force: true }))

test('a build is started while the files that it was made of are the same', async () => {
  expect(await start('all', '--help')).toBe('sources --help')
  isBuiltOf(['core/part.ts', 'programs/all.ts'])
  expect(await start('all', '--help')).toBe('build --help')
  put('core/part.ts', 'export const part = 2')
  expect(await start('all')).toBe('sources ')
  put('core/part.ts', 'export const part = 1')
  expect(await start('all')).toBe('build ')
  rmSync(join(home, 'core/part.ts'))
  expect(await start('all')).toBe('sources ')
})

test('the sources start when the record of the build cannot be read, or the build was removed', async () => {
  put('core/part.ts', 'export const part = 1')
  put(CURRENT_BUILD, '{"folder":"one","digest"')
  expect(await start('all')).toBe('sources ')
  isBuiltOf(['core/part.ts'])
  put(CURRENT_BUILD, readFileSync(join(home, CURRENT_BUILD), 'utf8').replace('"one"', '"gone"'))
  expect(await start('all')).toBe('sources ')
})

test('what is no name of a program is refused', async () => {
  for (const name of ['', 'missing', '../core/part', 'all.ts'])
    await expect(start(name)).rejects.toMatchObject({ code: 2, stderr: `no program has the name "${name}"\n` })
})

test('npm start runs the build of this checkout, with its worker', { timeout: PREPARE_DEADLINE_MS }, async () => {
  await run(process.execPath, ['tools/prepare.ts'], { cwd: ROOT })
  const { folder, digest, paths } = JSON.parse(readFileSync(join(ROOT, CURRENT_BUILD), 'utf8')) as CurrentBuild
  expect(digestOf(ROOT, paths)).toBe(digest)
  // What decides a build without being part of it, the entry, and code that only a thread of its own has.
  expect(paths).toEqual(expect.arrayContaining(['package-lock.json', 'programs/all.ts', 'http/openapi/yaml-thread.ts']))
  using installation = await createInstallation()
  await using whole = await startWhole(installation)
  const commands = familyOf(whole.pid).map(commandOf)
  expect(commands.filter((command) => command.includes(join(folder, 'worker.js')))).toHaveLength(1)
  for (const path of ['/docs/yaml', '/docs/guides/devices.md', '/console/']) {
    const answer = await whole.call('GET', path)
    expect([path, answer.status]).toEqual([path, 200])
  }
})
