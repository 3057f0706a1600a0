/**
 * `npm run release`: what is shipped beside the image, in `dist-release/` or the folder of the argument. The archive of what
 * `npm run build` made, worker and command line as one file each and as Debian packages, the bill of materials, openapi.json,
 * and SHA256SUMS of all of them. Needs GNU tar, gzip and dpkg-deb. The same `dist/` gives the same bytes.
 *
 * `--platforms=linux-x64,linux-arm64` (default): of single files and packages. `--key=FILE` names the Ed25519 key (PEM)
 * that signs SHA256SUMS as SHA256SUMS.sig; workers of this release then accept only upgrades that are signed with it.
 */
import { execFileSync } from 'node:child_process'
import { createHash, createPrivateKey, createPublicKey, sign } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { DEBIAN_ARCHITECTURES, writeDebianPackage } from './single-file/debian-package.ts'
import { nodePackage } from './single-file/node-package.ts'
import { PLATFORMS, PROGRAMS, bundleProgram, stageProgram, writeSingleFile } from './single-file/single-file.ts'

const ROOT = join(import.meta.dirname, '..')
const DIST = join(ROOT, 'dist')
/** What an installation without containers needs beside the programs. */
const BESIDE = ['LICENSE', 'CHANGELOG.md', 'deploy', 'docs/skein.1']
/** Files that `deploy/prepare.sh` created on this machine are not shipped. */
const OWN = /(^|\/)(skein\.env|certs)$/

const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
const { values, positionals } = parseArgs({
  options: { platforms: { type: 'string' }, key: { type: 'string' } },
  allowPositionals: true,
})
const folder = resolve(positionals[0] ?? join(ROOT, 'dist-release'))
const platforms = PLATFORMS.filter((platform) => values.platforms?.split(',').includes(platform) ?? true)
const privateKey = values.key === undefined ? undefined : createPrivateKey(readFileSync(values.key))
const publicKey =
  privateKey === undefined ? undefined : createPublicKey(privateKey).export({ type: 'spki', format: 'pem' }).toString()

function fail(message: string): never {
  console.error(message)
  process.exit(1)
}

if (!existsSync(join(DIST, 'build.json'))) fail('dist/ is not built: run npm run build first')
const built = JSON.parse(readFileSync(join(DIST, 'package.json'), 'utf8')) as { version: string }
if (built.version !== version) fail(`dist/ is version ${built.version}, package.json ${version}: run npm run build`)
if (
  !new RegExp(`^## ${version.replaceAll('.', String.raw`\.`)}\\b`, 'm').test(
    readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8'),
  )
)
  fail(`CHANGELOG.md has no heading for version ${version}`)

rmSync(folder, { recursive: true, force: true })
mkdirSync(folder, { recursive: true })
const name = `skein-${version}`
const staging = mkdtempSync(join(tmpdir(), 'skein-release-'))
try {
  const copied = join(staging, name)
  // A bill of materials that was written there is shipped beside the archive.
  cpSync(DIST, join(copied, 'dist'), { recursive: true, filter: (path) => !path.endsWith('.cdx.json') })
  for (const path of BESIDE)
    cpSync(join(ROOT, path), join(copied, path), { recursive: true, filter: (from) => !OWN.test(from) })
  const { build_time: builtAt } = JSON.parse(readFileSync(join(DIST, 'build.json'), 'utf8')) as { build_time: string }
  const options = [
    '--sort=name',
    '--owner=0',
    '--group=0',
    '--numeric-owner',
    '--mode=u=rwX,go=rX',
    `--mtime=${builtAt}`,
  ]
  const archive = join(folder, `${name}.tar.gz`)
  execFileSync('tar', [...options, '--use-compress-program=gzip -n', '-cf', archive, '-C', staging, name])
  for (const program of PROGRAMS) {
    const bundle = join(staging, `${program.name}-bundle`)
    await bundleProgram(program, bundle, publicKey)
    for (const platform of platforms) {
      const unpacked = join(staging, `${program.name}-${platform}`)
      const contents = { version, builtAt, bundle, node: nodePackage(platform), staging: unpacked }
      stageProgram(program, contents)
      writeSingleFile(program, platform, contents, join(folder, `${program.name}-${platform}`))
      writeDebianPackage(
        program,
        platform,
        contents,
        join(folder, `${program.name}_${version}_${DEBIAN_ARCHITECTURES[platform]}.deb`),
      )
    }
  }
} finally {
  rmSync(staging, { recursive: true, force: true })
}
execFileSync(process.execPath, [join(ROOT, 'tools/sbom.ts'), join(folder, `${name}.cdx.json`)])
cpSync(join(ROOT, 'openapi.json'), join(folder, `${name}.openapi.json`))

const sums = readdirSync(folder)
  .toSorted()
  .map(
    (file) =>
      `${createHash('sha256')
        .update(readFileSync(join(folder, file)))
        .digest('hex')}  ${file}\n`,
  )
  .join('')
writeFileSync(join(folder, 'SHA256SUMS'), sums)
if (privateKey !== undefined) writeFileSync(join(folder, 'SHA256SUMS.sig'), sign(null, Buffer.from(sums), privateKey))
process.stdout.write(sums)
