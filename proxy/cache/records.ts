/**
 * Small records on disk, one JSON file per key: the digest of a tag, the module of a manifest. Losing one costs a request
 * to the registry, so they are renamed into place but not synced, and an invalid one counts as absent.
 */
import { createHash, randomUUID } from 'node:crypto'
import { mkdir, readFile, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { asDiskError, removeAbandoned } from './files.ts'

export type Records<T> = {
  get(key: string): Promise<T | undefined>
  set(key: string, value: T): Promise<void>
}

export type RecordsOptions<T> = {
  folder: string
  /** Beyond it the oldest record is removed. */
  maxRecords: number
  /** Undefined: not a valid record; another version can have written it. */
  parse: (value: unknown) => T | undefined
}

const SUFFIX = '.json'

export async function openRecords<T>({ folder, maxRecords, parse }: RecordsOptions<T>): Promise<Records<T>> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const names = new Set<string>()
  for (const name of await readdir(folder)) {
    if (name.endsWith(SUFFIX)) names.add(name)
  }
  const temporaryFolder = join(folder, 'tmp')
  await mkdir(temporaryFolder, { recursive: true, mode: 0o700 })
  await removeAbandoned(temporaryFolder, Date.now()) // a writer was killed between write and rename
  return {
    async get(key) {
      const text = await readFile(join(folder, nameOf(key)), 'utf8').catch(() => undefined)
      const stored = text === undefined ? undefined : parseStored(text)
      return stored?.key === key ? parse(stored.value) : undefined
    },
    async set(key, value) {
      const name = nameOf(key)
      const temporary = join(temporaryFolder, randomUUID())
      try {
        await writeFile(temporary, JSON.stringify({ key, value }), { mode: 0o600 })
        await rename(temporary, join(folder, name))
      } catch (error) {
        await rm(temporary, { force: true })
        throw asDiskError(error)
      }
      names.delete(name)
      names.add(name)
      for (const oldest of names) {
        if (names.size <= maxRecords) break
        names.delete(oldest)
        await rm(join(folder, oldest), { force: true })
      }
    },
  }
}

// Keys contain slashes and can be longer than a file name.
function nameOf(key: string): string {
  return `${createHash('sha256').update(key).digest('hex')}${SUFFIX}`
}

function parseStored(text: string): { key: unknown; value: unknown } | undefined {
  try {
    const stored: unknown = JSON.parse(text)
    return typeof stored === 'object' && stored !== null && 'key' in stored && 'value' in stored ? stored : undefined
  } catch {
    return undefined
  }
}
