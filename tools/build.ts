/**
 * `npm run build`: bundles the programs in `dist/`, with all files that they read at run time, for images and for a fast
 * start. The result is self-contained except for the embedded PostgreSQL, which must be in a `node_modules` above it.
 */
import { cp, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { build as buildPage } from 'vite'
import { commitOf } from '#core/build-info.ts'
import { HOME, packageFolder } from '#core/installation.ts'
import { BUILT_FOLDER, stageFromSource } from '#worker/isolation/staging.ts'
import { RUNNER_CODE } from '#worker/runner/staged-code.ts'
import { TRANSPILER_CODE } from '#worker/transpile/transpile.ts'
import { bundle } from './bundle.ts'

/** Packages whose files are read at run time: see `packageFolder`. */
const PACKAGE_FOLDERS: readonly (readonly [name: string, folder: string])[] = [
  ['@fastify/swagger-ui', 'static'],
  ['@bytecodealliance/jco-transpile', 'vendor'],
  ['@bytecodealliance/preview2-shim', 'dist/browser'],
]
/** Code of processes that can read only their own folder. */
const STAGED = [RUNNER_CODE, TRANSPILER_CODE]
const LICENSE_FILE = /^(licen[cs]e|notice|copying)/i

const { name, version, license } = JSON.parse(await readFile(join(HOME, 'package.json'), 'utf8')) as {
  name: string
  version: string
  license: string
}
const dist = join(HOME, 'dist')
await rm(dist, { recursive: true, force: true })

const output = await bundle(dist)

const made = {
  commit: process.env['COMMIT'] || commitOf(HOME),
  build_time: process.env['BUILD_TIME'] || new Date().toISOString(),
}
await writeFile(join(dist, 'package.json'), `${JSON.stringify({ name, version, license, type: 'module' }, null, 2)}\n`)
await writeFile(join(dist, 'build.json'), `${JSON.stringify(made)}\n`)
for (const folder of ['migrations', join('docs', 'guides')])
  await cp(join(HOME, folder), join(dist, folder), { recursive: true })
for (const code of STAGED) await stageFromSource(join(dist, BUILT_FOLDER, code.name), code)
for (const [packageName, folder] of PACKAGE_FOLDERS)
  await cp(packageFolder(packageName, folder), join(dist, 'packages', packageName, folder), { recursive: true })

const page = await buildPage({
  configFile: join(HOME, 'console', 'vite.config.ts'),
  logLevel: 'error',
  build: { outDir: join(dist, 'console'), emptyOutDir: true },
})
const pageOutput = Array.isArray(page) || 'output' in page ? [page].flat().flatMap((one) => one.output) : []

const modules = [...output, ...pageOutput].flatMap((file) => (file.type === 'chunk' ? file.moduleIds : []))
await writeFile(join(dist, 'LICENSES.txt'), await licensesOf(packagesOf(modules)))

const bytes = await sizeOf(dist)
process.stdout.write(`dist/ has ${(bytes / 1024 / 1024).toFixed(1)} MiB\n`)

/** Folders of the packages whose code is in the bundles, and of those that are staged or copied next to them. */
function packagesOf(moduleIds: readonly string[]): string[] {
  const bundled = moduleIds.flatMap((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(id)?.[0] ?? [])
  const copied = STAGED.flatMap((code) => code.packages).map((one) => one.name)
  // A style sheet imports the font.
  const beside = [...copied, '@fontsource-variable/inter', ...PACKAGE_FOLDERS.map(([one]) => one)].map((one) =>
    join(HOME, 'node_modules', one),
  )
  return [...new Set([...bundled, ...beside])].toSorted()
}

async function licensesOf(folders: readonly string[]): Promise<string> {
  const texts: string[] = []
  for (const folder of folders) {
    const own = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as {
      name?: string
      version?: string
      license?: string
    }
    const files = (await readdir(folder)).filter((file) => LICENSE_FILE.test(file)).toSorted()
    const notices = await Promise.all(files.map((file) => readFile(join(folder, file), 'utf8')))
    texts.push([`${own.name} ${own.version}: ${own.license}`, ...notices.map((text) => text.trim())].join('\n\n'))
  }
  return `${texts.join(`\n\n${'-'.repeat(80)}\n\n`)}\n`
}

async function sizeOf(folder: string): Promise<number> {
  const sizes = await Promise.all(
    (await readdir(folder, { recursive: true, withFileTypes: true }))
      .filter((entry) => entry.isFile())
      .map(async (entry) => (await readFile(join(entry.parentPath, entry.name))).length),
  )
  return sizes.reduce((sum, size) => sum + size, 0)
}
