/** Files of the archive in a folder, by URL. */
import { mkdir, open, rm, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { syncPath } from '#core/sync-folder.ts'

const SCHEME = 'file://'

/** URLs of the archive hold no character that engines decode in different ways, so that the rest is the path. */
export function pathOf(url: string): string {
  if (!url.startsWith(`${SCHEME}/`)) throw new Error(`not a file of the archive: ${url}`)
  return url.slice(SCHEME.length)
}

/** Creates the folder of a file, and makes it durable. */
export async function createFolderOf(url: string): Promise<void> {
  const folder = dirname(pathOf(url))
  const first = await mkdir(folder, { recursive: true })
  if (first === undefined) return
  for (let path = folder; path.length >= first.length; path = dirname(path)) await syncPath(dirname(path))
}

/** Writes a new file; it is durable afterwards. Rejects when it exists. */
export async function writeNewFile(url: string, bytes: Uint8Array): Promise<void> {
  await createFolderOf(url)
  const file = await open(pathOf(url), 'wx')
  try {
    await file.writeFile(bytes)
    await file.sync()
  } finally {
    await file.close()
  }
  await syncFolderOf(url)
}

/** A new file is durable only when its folder is. */
export async function syncFolderOf(url: string): Promise<void> {
  await syncPath(dirname(pathOf(url)))
}

/** The size in bytes; undefined: there is no such file. */
export async function sizeOf(url: string): Promise<number | undefined> {
  try {
    return (await stat(pathOf(url))).size
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** A file that is gone is no error. */
export async function removeFile(url: string): Promise<void> {
  await rm(pathOf(url), { force: true })
}
