/** The manifest of a backup, and how it is read. */
import { ServiceError } from '#core/errors/index.ts'
import type { Member } from './archive.ts'
import { damaged } from './archive.ts'
import { isCounts, isManifest, isMarked } from './schema.ts'
import type { Counts, Manifest } from './schema.ts'

/** Incremented when a reader of this version could misread a file. */
export const FORMAT_VERSION = 1
export const MANIFEST = 'manifest.json'
export const COUNTS = 'counts.json'

/** Throws `malformed` for another kind of file and `invalid_state` for one of a newer format. */
export function parseManifest(path: string, { name, data }: Member): Manifest {
  const value = name === MANIFEST ? parseJson(path, data) : undefined
  if (!isMarked(value)) throw new ServiceError('malformed', `${path} is not a backup of Skein`)
  if (value.format_version > FORMAT_VERSION) throw newer(path, (value as { skein_version?: unknown }).skein_version)
  if (!isManifest(value)) throw damaged(path)
  return value
}

export function parseCounts(path: string, { data }: Member): Counts {
  const value = parseJson(path, data)
  if (!isCounts(value)) throw damaged(path)
  return value
}

export function newer(path: string, version: unknown): ServiceError {
  const maker = typeof version === 'string' ? `Skein ${version}` : 'a newer Skein'
  return new ServiceError(
    'invalid_state',
    `${path} was written by ${maker}, which is newer than this one: restore it with that version`,
  )
}

function parseJson(path: string, data: Buffer): unknown {
  try {
    return JSON.parse(data.toString())
  } catch {
    throw damaged(path)
  }
}
