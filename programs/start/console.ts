/**
 * The web console. A build of Skein contains it; a checkout builds it in a child process before its ports are open, when there is no
 * build of its sources.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { access, constants, mkdir, readFile, readdir, rename, rm, stat } from 'node:fs/promises'
import { findPackageJSON } from 'node:module'
import { dirname, join } from 'node:path'
import { singlePage } from '#http/index.ts'
import type { PageNotice, RoutePlugin } from '#http/index.ts'
import { HOME, IS_BUILT } from '#core/installation.ts'
import type { Logger } from '#core/logging/index.ts'

export const CONSOLE_PATH = '/console'
const SANDBOXES = ['try.html']

const SOURCES = join(HOME, 'console')
/** What `console/try` shares with the worker. */
const SHARED_SOURCES = ['guests', 'core/bytes', 'core/errors'].map((part) => join(HOME, part))
/** The console in a build of Skein. */
const BUILT = join(HOME, 'console')
const CACHE = join(HOME, 'node_modules', '.cache', 'console')
/** A build takes seconds. Processes of the platform wait for it, at most for two minutes. */
const BUILD_DEADLINE_MS = 60_000
const KEPT_BUILDS = 2

const absent = (text: string): PageNotice => ({ title: 'The console is not built', text })
const NOT_BUILT = absent(
  'The packages that build it are not installed. Run <code>npm ci --include=dev</code> and start Skein again, or use an image: it contains the console.',
)
const FAILED = absent(
  'The build failed. Run <code>npm run console</code>, which repeats it and prints the reason, and start Skein again.',
)

/** The folder of the console, or what its page says without one. */
export type ConsolePage = { folder: string } | PageNotice

export type ConsoleOptions = {
  dataDir: string
  logger: Logger
  signal: AbortSignal
  /** Called before a build. */
  onBuild: () => void
}

export const consoleRoutes = (page: ConsolePage): RoutePlugin =>
  singlePage({ path: CONSOLE_PATH, page, sandboxes: SANDBOXES })

/** Finds the console of this installation and builds it when its sources changed. Without it, the rest of Skein is not affected. */
export async function prepareConsole({ dataDir, logger, signal, onBuild }: ConsoleOptions): Promise<ConsolePage> {
  if (IS_BUILT) return (await isComplete(BUILT)) ? { folder: BUILT } : NOT_BUILT
  try {
    const hash = await hashOfSources()
    const places = [CACHE, join(dataDir, 'console')]
    for (const place of places) if (await isComplete(join(place, hash))) return { folder: join(place, hash) }
    if (findVite() === undefined) return NOT_BUILT
    onBuild()
    return { folder: await build(await writableOf(places), hash, signal) }
  } catch (error) {
    signal.throwIfAborted()
    logger.error({ err: error }, 'failed to build the console; npm run console repeats the build')
    return FAILED
  }
}

/** Builds the console for the programs of this checkout, unless it is built. Returns its folder. */
export async function buildConsole(): Promise<string> {
  const hash = await hashOfSources()
  const folder = join(CACHE, hash)
  return (await isComplete(folder)) ? folder : await build(CACHE, hash, new AbortController().signal)
}

async function build(cache: string, hash: string, signal: AbortSignal): Promise<string> {
  const vite = findVite()
  if (vite === undefined) throw new Error('vite is not installed: run npm ci --include=dev')
  const folder = join(cache, hash)
  const own = `${folder}.${process.pid}`
  await mkdir(cache, { recursive: true })
  try {
    // Node loads the configuration: vite would write it below `node_modules` first, which may be read-only.
    const options = ['--configLoader', 'native', '--outDir', own, '--emptyOutDir', '--logLevel', 'error']
    await runVite([vite, 'build', SOURCES, ...options], signal)
    // Another process of this machine may have been faster.
    await rename(own, folder).catch(async (error: unknown) => {
      if (!(await isComplete(folder))) throw error
    })
  } finally {
    await rm(own, { recursive: true, force: true })
  }
  // Another process may remove the same ones.
  await removeOldBuilds(cache).catch(() => undefined)
  return folder
}

function findVite(): string | undefined {
  try {
    const manifest = findPackageJSON('vite', import.meta.url)
    return manifest === undefined ? undefined : join(dirname(manifest), 'bin', 'vite.js')
  } catch {
    return undefined
  }
}

async function runVite(args: readonly string[], signal: AbortSignal) {
  const child = spawn(process.execPath, args, {
    cwd: HOME,
    // Ctrl-C reaches this process alone, which then ends the build.
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { NODE_ENV: 'production', NO_COLOR: '1' },
    signal: AbortSignal.any([signal, AbortSignal.timeout(BUILD_DEADLINE_MS)]),
    killSignal: 'SIGKILL',
  })
  let said = ''
  child.stderr.on('data', (chunk: Buffer) => (said = `${said}${chunk.toString()}`.slice(-4_000)))
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  if (code !== 0) throw new Error(`vite ended with exit code ${code}: ${said.trim()}`)
}

/** A digest of the names and contents of all sources, and of the packages. */
async function hashOfSources(): Promise<string> {
  const folders = [SOURCES, ...SHARED_SOURCES]
  const entries = (
    await Promise.all(folders.map((folder) => readdir(folder, { recursive: true, withFileTypes: true })))
  ).flat()
  const names = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
  const paths = [...names.toSorted(), join(HOME, 'package-lock.json')]
  // The files are read all at once, because every start of a checkout reads them.
  const contents = await Promise.all(paths.map((path) => readFile(path)))
  const hash = createHash('sha256')
  for (const [index, content] of contents.entries())
    hash.update(`${paths[index]?.slice(HOME.length)} ${content.length}\n`).update(content)
  return hash.digest('hex').slice(0, 16)
}

/** An installation that belongs to another user keeps the console with the data. Throws when no place is writable. */
async function writableOf(places: readonly string[]): Promise<string> {
  let failure: unknown
  for (const place of places) {
    try {
      await mkdir(place, { recursive: true })
      await access(place, constants.W_OK)
      return place
    } catch (error) {
      failure = error
    }
  }
  throw failure
}

/** Removes older builds, and what was left by builds that were killed. */
async function removeOldBuilds(cache: string): Promise<void> {
  const names = await readdir(cache)
  const found = await Promise.all(
    names.map(async (name) => ({ name, mtimeMs: (await stat(join(cache, name))).mtimeMs })),
  )
  const builds = found.filter(({ name }) => /^[0-9a-f]{16}$/.test(name)).toSorted((a, b) => b.mtimeMs - a.mtimeMs)
  const deadSinceMs = Date.now() - BUILD_DEADLINE_MS
  const left = found.filter(({ name, mtimeMs }) => /^[0-9a-f]{16}\.\d+$/.test(name) && mtimeMs < deadSinceMs)
  for (const { name } of [...builds.slice(KEPT_BUILDS), ...left])
    await rm(join(cache, name), { recursive: true, force: true })
}

const isComplete = (folder: string) =>
  access(join(folder, 'index.html')).then(
    () => true,
    () => false,
  )
