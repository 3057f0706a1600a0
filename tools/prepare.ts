/**
 * The last step of `npm ci`: builds the programs and the console of this checkout, so that the first start has them. Nothing needs it:
 * without its packages, or when it fails, the programs start from their sources and the first start builds the console.
 */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises'
import { findPackageJSON } from 'node:module'
import { join, relative, sep } from 'node:path'
import { promisify } from 'node:util'
import { CURRENT_BUILD, digestOf, findBuilt } from '#core/built-programs.ts'
import type { CurrentBuild } from '#core/built-programs.ts'
import { BUILDS, HOME } from '#core/installation.ts'
import { errorMessageOf } from '#core/program/index.ts'

const CACHE = join(HOME, BUILDS)
const CURRENT = join(HOME, CURRENT_BUILD)
/** What else decides what a build contains. */
const SETTINGS = ['package.json', 'package-lock.json', join('tools', 'bundle.ts')]
/** What bundling takes for a moment is half of it. */
const NEEDED_BYTES = 1.5 * 1024 ** 3
/** A program that runs reads some of its scripts when they are first needed. */
const KEPT_BUILDS = 3

async function buildPrograms(): Promise<void> {
  if (findBuilt(HOME, 'all') !== undefined) return
  // Where there is less, the system might end the installation.
  if (process.availableMemory() < NEEDED_BYTES) return
  const draft = join(CACHE, `draft-${process.pid}`)
  await mkdir(draft, { recursive: true })
  try {
    const { bundle } = await import('./bundle.ts')
    const output = await bundle(draft)
    const modules = output.flatMap((file) => (file.type === 'chunk' ? file.moduleIds : []))
    const own = modules.map((id) => relative(HOME, id)).filter(isSource)
    const paths = [...new Set([...own, ...SETTINGS])].toSorted()
    const digest = digestOf(HOME, paths)
    const folder = digest.slice(0, 16)
    await writeFile(join(draft, 'package.json'), '{"type":"module"}\n')
    // Scripts of the same digest are the same; a program may be running from them.
    await rename(draft, join(CACHE, folder)).catch((error: unknown) => {
      if (!existsSync(join(CACHE, folder))) throw error
    })
    const current: CurrentBuild = { folder, digest, paths }
    await writeFile(`${CURRENT}.${process.pid}`, JSON.stringify(current))
    await rename(`${CURRENT}.${process.pid}`, CURRENT)
    await removeOldBuilds(folder)
  } finally {
    await rm(draft, { recursive: true, force: true })
  }
}

const isSource = (path: string) =>
  path !== '' && !path.startsWith('\0') && !path.startsWith('..') && !path.split(sep).includes('node_modules')

/** Removes older builds, and what was left by runs that were killed. */
async function removeOldBuilds(current: string): Promise<void> {
  const names = (await readdir(CACHE)).filter((name) => name !== 'current.json' && name !== current)
  const found = await Promise.all(
    names.map(async (name) => ({ name, mtimeMs: (await stat(join(CACHE, name))).mtimeMs })),
  )
  const old = found.toSorted((a, b) => b.mtimeMs - a.mtimeMs).slice(KEPT_BUILDS - 1)
  for (const { name } of old) await rm(join(CACHE, name), { recursive: true, force: true })
}

const isInstalled = (name: string) => {
  try {
    return findPackageJSON(name, import.meta.url) !== undefined
  } catch {
    return false
  }
}

/** Runs in a process of its own, as `npm run console` does. */
async function buildConsole(): Promise<void> {
  await promisify(execFile)(process.execPath, ['programs/build-console.ts'], { cwd: HOME })
}

for (const [what, needs, build] of [
  ['programs', 'rolldown', buildPrograms],
  ['console', 'vite', buildConsole],
] as const) {
  if (!isInstalled(needs)) continue
  try {
    await build()
  } catch (error) {
    process.stderr.write(`the ${what} of this checkout could not be built: ${errorMessageOf(error)}\n`)
  }
}
