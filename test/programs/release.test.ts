// What `npm run release` ships: an archive that runs, the bill of materials, and checksums that a stranger checks.
import { execFileSync } from 'node:child_process'
import { generateKeyPairSync, verify } from 'node:crypto'
import {
  appendFileSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { bytesBelow } from '../../tools/single-file/single-file.ts'
import { ROOT } from './deployment-files.ts'

/** What a device downloads, and what lies on its disk. */
const MAX_FILE_BYTES = 60 * 1000 * 1000
const MAX_UNPACKED_BYTES = 170 * 1000 * 1000

const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
const folder = mkdtempSync(join(tmpdir(), 'skein-release-'))
const key = join(folder, 'key.pem')
const release = (to: string, platforms: string) =>
  execFileSync(process.execPath, [join(ROOT, 'tools/release.ts'), to, `--platforms=${platforms}`, `--key=${key}`], {
    encoding: 'utf8',
  })
const check = (inside: string) =>
  execFileSync('sha256sum', ['--check', '--strict', '--quiet', 'SHA256SUMS'], { cwd: inside, stdio: 'pipe' })

const keys = generateKeyPairSync('ed25519')

beforeAll(() => {
  writeFileSync(key, keys.privateKey.export({ type: 'pkcs8', format: 'pem' }))
  release(join(folder, 'one'), `linux-${process.arch}`)
  // It compresses Node four times.
}, 300_000)
afterAll(() => rmSync(folder, { recursive: true, force: true }))

it('the release has a checksum for every file, and one changed byte is detected', () => {
  const one = join(folder, 'one')
  const architecture = process.arch === 'x64' ? 'amd64' : process.arch
  const programs = ['skein', 'skein-worker'].flatMap((name) => [
    `${name}-linux-${process.arch}`,
    `${name}_${version}_${architecture}.deb`,
  ])
  const files = ['cdx.json', 'openapi.json', 'tar.gz'].map((end) => `skein-${version}.${end}`)
  expect(readdirSync(one).toSorted()).toEqual(['SHA256SUMS', 'SHA256SUMS.sig', ...programs, ...files].toSorted())
  check(one)
  const sums = readFileSync(join(one, 'SHA256SUMS'))
  expect(verify(null, sums, keys.publicKey, readFileSync(join(one, 'SHA256SUMS.sig')))).toBe(true)
  // Without single files, which take long and are compared in single-file.test.ts.
  release(join(folder, 'two'), '')
  // The same build gives the same bytes.
  expect(readFileSync(join(folder, 'two/SHA256SUMS'), 'utf8')).toBe(
    sums
      .toString()
      .split(/(?<=\n)/)
      .filter((line) => files.some((file) => line.endsWith(`  ${file}\n`)))
      .join(''),
  )
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

it('a single file is small, knows the key of the release, and its package has the same program as a service', () => {
  const one = join(folder, 'one')
  const file = join(one, `skein-worker-linux-${process.arch}`)
  expect(statSync(file).size).toBeLessThan(MAX_FILE_BYTES)
  const unpacked = execFileSync(file, ['--unpack-only'], {
    encoding: 'utf8',
    env: { SKEIN_PROGRAM_DIR: join(folder, 'programs') },
    stdio: ['ignore', 'pipe', 'ignore'],
  }).trim()
  expect(bytesBelow(unpacked)).toBeLessThan(MAX_UNPACKED_BYTES)
  expect(readFileSync(join(unpacked, 'app/release-key.pem'), 'utf8')).toBe(
    keys.publicKey.export({ type: 'spki', format: 'pem' }),
  )
  const debs = readdirSync(one).filter((name) => name.endsWith('.deb'))
  for (const deb of debs) {
    const root = join(folder, deb.replace(/_.*/, ''))
    execFileSync('dpkg-deb', ['--raw-extract', join(one, deb), root])
    const name = deb.replace(/_.*/, '')
    const home = join(root, 'usr/lib', name)
    const output = execFileSync(join(home, 'run'), ['--help'], { encoding: 'utf8' })
    expect(output).toContain(name === 'skein' ? 'skein <group>' : 'Usage: skein-worker')
    expect(statSync(join(root, 'usr/bin', name)).mode & 0o777).toBe(0o755)
  }
  const worker = join(folder, 'skein-worker')
  expect(readFileSync(join(worker, 'usr/lib/systemd/system/skein-worker.service'), 'utf8')).toContain(
    'ExecStart=/usr/lib/skein-worker/run\n',
  )
  expect(readFileSync(join(worker, 'DEBIAN/control'), 'utf8')).toMatch(/^Depends: .*libatomic1, systemd$/m)
})
