/**
 * The web console. A build of Skein contains it; a checkout builds it in a child process with a low priority when its sources
 * changed, after the ports are open.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { access, constants, mkdir, readFile, readdir, rename, rm, stat } from 'node:fs/promises'
import { findPackageJSON } from 'node:module'
import { setPriority } from 'node:os'
import { dirname, join } from 'node:path'
import { singlePage } from '#core/http/index.ts'
import type { PageNotice, RoutePlugin } from '#core/http/index.ts'
import { HOME, IS_BUILT } from '#core/installation.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Lifecycle } from '#core/program/index.ts'

export const CONSOLE_PATH = '/console'
const SANDBOXES = ['try.html']

const SOURCES = join(HOME, 'console')
/** What `console/try` shares with the worker. */
const SHARED_SOURCES = ['wasm', 'wasi', 'guests', 'transpiler', 'bytes', 'errors'].map((part) =>
  join(HOME, 'core', part),
)
/** In a build of Skein. */
const BUILT = join(HOME, 'console')
const CACHE = join(HOME, 'node_modules', '.cache', 'console')
/** Low, so that a build does not delay messages and runs. */
const NICE = 10
/** A build takes seconds. */
const BUILD_DEADLINE_MS = 300_000
const KEPT_BUILDS = 2

const BUILDING: PageNotice = {
  title: 'Building the console',
  text: 'This takes a few seconds, once after an update. The page reloads itself.',
  retrySeconds: 1,
}
const absent = (text: string): PageNotice => ({ title: 'The console is not built', text })
const NOT_BUILT = absent(
  'The packages that build it are not installed. Run <code>npm ci --include=dev</code> and start Skein again, or use an image: it contains the console.',
)
const FAILED = absent('The build failed. The log of Skein says why; <code>npm run console</code> repeats it.')

export type Console = {
  readonly routes: RoutePlugin
  /** Builds it when its sources changed; returns at once. */
  build(life: Lifecycle): void
}

export function createConsole({ dataDir, logger }: { dataDir: string; logger: Logger }): Console {
  let hasFailed = false
  let known: Promise<string> | undefined
  const find = async (): Promise<{ folder: string } | PageNotice> => {
    if (IS_BUILT) return (await exists(join(BUILT, 'index.html'))) ? { folder: BUILT } : NOT_BUILT
    known ??= hashOfSources().catch((error: unknown) => {
      known = undefined
      throw error
    })
    const hash = await known
    for (const place of [CACHE, join(dataDir, 'console')])
      if (await exists(join(place, hash, 'index.html'))) return { folder: join(place, hash) }
    if (findVite() === undefined) return NOT_BUILT
    return hasFailed ? FAILED : BUILDING
  }
  const build = async (signal: AbortSignal) => {
    try {
      const found = await find()
      if ('folder' in found || found === NOT_BUILT) return
      await buildConsole((await writableCache(dataDir)) ?? CACHE, { signal, nice: NICE })
      logger.info('the console is built')
    } catch (error) {
      if (signal.aborted) return
      hasFailed = true
      logger.error({ err: error }, 'failed to build the console; the rest of Skein is not affected')
    }
  }
  return {
    routes: singlePage({ path: CONSOLE_PATH, folder: find, sandboxes: SANDBOXES }),
    build: (life) => void build(life.signal),
  }
}

/** Builds the console in a child process below `cache`, unless it is there. Returns its folder. */
export async function buildConsole(
  cache: string,
  { signal, nice }: { signal: AbortSignal; nice: number },
): Promise<string> {
  const folder = join(cache, await hashOfSources())
  if (await exists(join(folder, 'index.html'))) return folder
  const vite = findVite()
  if (vite === undefined) throw new Error('vite is not installed: run npm ci --include=dev')
  const own = `${folder}.${process.pid}`
  await mkdir(cache, { recursive: true })
  try {
    await runVite([vite, 'build', SOURCES, '--outDir', own, '--emptyOutDir', '--logLevel', 'error'], { signal, nice })
    // Another process of this machine may have been faster.
    await rename(own, folder).catch(async (error: unknown) => {
      if (!(await exists(join(folder, 'index.html')))) throw error
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

async function runVite(args: readonly string[], { signal, nice }: { signal: AbortSignal; nice: number }) {
  const child = spawn(process.execPath, args, {
    cwd: HOME,
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { NODE_ENV: 'production' },
    signal: AbortSignal.any([signal, AbortSignal.timeout(BUILD_DEADLINE_MS)]),
    killSignal: 'SIGKILL',
  })
  if (child.pid !== undefined) setPriority(child.pid, nice)
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
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
  const hash = createHash('sha256')
  for (const path of [...paths.toSorted(), join(HOME, 'package-lock.json')]) {
    const content = await readFile(path)
    hash.update(`${path.slice(HOME.length)} ${content.length}\n`).update(content)
  }
  return hash.digest('hex').slice(0, 16)
}

/** An installation that belongs to another user keeps the console with the data. */
async function writableCache(dataDir: string): Promise<string | undefined> {
  for (const place of [CACHE, join(dataDir, 'console')]) {
    const made = await mkdir(place, { recursive: true })
      .then(() => access(place, constants.W_OK))
      .then(
        () => place,
        () => undefined,
      )
    if (made !== undefined) return made
  }
  return undefined
}

async function removeOldBuilds(cache: string): Promise<void> {
  const names = (await readdir(cache)).filter((name) => /^[0-9a-f]{16}$/.test(name))
  const builds = await Promise.all(
    names.map(async (name) => ({ name, mtimeMs: (await stat(join(cache, name))).mtimeMs })),
  )
  for (const { name } of builds.toSorted((a, b) => b.mtimeMs - a.mtimeMs).slice(KEPT_BUILDS))
    await rm(join(cache, name), { recursive: true, force: true })
}

const exists = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  )
