// What `npm run release` ships: an archive that runs, the bill of materials, and checksums that a stranger checks.
import { execFileSync } from 'node:child_process'
import { appendFileSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { ROOT } from './deployment-files.ts'

const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
const folder = mkdtempSync(join(tmpdir(), 'skein-release-'))
const release = (to: string) =>
  execFileSync(process.execPath, [join(ROOT, 'tools/release.ts'), to], { encoding: 'utf8' })
const check = (inside: string) =>
  execFileSync('sha256sum', ['--check', '--strict', '--quiet', 'SHA256SUMS'], { cwd: inside, stdio: 'pipe' })

beforeAll(() => void release(join(folder, 'one')))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

it('the release has a checksum for every file, and one changed byte is detected', () => {
  const one = join(folder, 'one')
  const files = ['SHA256SUMS', `skein-${version}.cdx.json`, `skein-${version}.openapi.json`, `skein-${version}.tar.gz`]
  expect(readdirSync(one).toSorted()).toEqual(files)
  check(one)
  release(join(folder, 'two'))
  // The same build gives the same bytes.
  expect(readFileSync(join(folder, 'two/SHA256SUMS'), 'utf8')).toBe(readFileSync(join(one, 'SHA256SUMS'), 'utf8'))
  appendFileSync(join(folder, 'two', `skein-${version}.tar.gz`), 'x')
  expect(() => check(join(folder, 'two'))).toThrow(/did NOT match/)
})

it('the archive runs without the checkout, and contains no secret of this machine', () => {
  execFileSync('tar', ['-xzf', join(folder, 'one', `skein-${version}.tar.gz`), '-C', folder])
  const unpacked = join(folder, `skein-${version}`)
  expect(
    execFileSync(process.execPath, [join(unpacked, 'dist/skein.js'), '--version'], { encoding: 'utf8' }),
  ).toContain(version)
  for (const path of [
    'LICENSE',
    'CHANGELOG.md',
    'deploy/health.mjs',
    'docs/skein.1',
    'dist/LICENSES.txt',
    'dist/migrations/0001_skein.sql',
  ])
    expect(existsSync(join(unpacked, path)), path).toBe(true)
  expect(readdirSync(join(unpacked, 'deploy')).filter((name) => /env|certs/.test(name))).toEqual([])
})
