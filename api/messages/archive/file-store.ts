/**
 * Files of the archive in a folder, by URL. The owner writes, the group of the folder reads, others have no access. The umask does not matter,
 * except in a folder with the set-group-id bit.
 */
import { chmod, mkdir, open, opendir, readFile, rename, rm, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { syncPath } from '#core/sync-folder.ts'
import type { ArchiveStore } from './store.ts'

const SCHEME = 'file://'
export const FILE_MODE = 0o640
const FOLDER_MODE = 0o750
/** The group of a folder with this bit is that of everything below it. */
const SET_GROUP = 0o2000

/** URLs of the archive hold no character that engines decode in different ways, so that the rest is the path. */
export function pathOf(url: string): string {
  if (!url.startsWith(`${SCHEME}/`)) throw new Error(`not a file of the archive: ${url}`)
  return url.slice(SCHEME.length)
}

/** Creates the folder of a file, and makes it durable. */
export async function createFolderOf(url: string): Promise<void> {
  const folder = dirname(pathOf(url))
  const first = await mkdir(folder, { recursive: true, mode: FOLDER_MODE })
  if (first === undefined) return
  for (let path = folder; path.length >= first.length; path = dirname(path)) {
    const { mode } = await stat(path)
    // A change of the mode clears the set-group-id bit for who is not in the group, and systemd's RestrictSUIDSGID refuses to set it.
    if ((mode & SET_GROUP) === 0 && (mode & 0o777) !== FOLDER_MODE) await chmod(path, FOLDER_MODE)
    await syncPath(dirname(path))
  }
}

/** Whether the umask has hidden the folder from the group that its set-group-id bit gives it to. */
export async function isHiddenFromGroup(url: string): Promise<boolean> {
  const { mode } = await stat(pathOf(url))
  return (mode & SET_GROUP) !== 0 && (mode & FOLDER_MODE) !== FOLDER_MODE
}

/** Writes a new file; it is durable afterwards. Rejects when it exists. */
export async function writeNewFile(url: string, bytes: Uint8Array): Promise<void> {
  await createFolderOf(url)
  await write(pathOf(url), bytes, 'wx')
  await syncFolderOf(url)
}

async function write(path: string, bytes: Uint8Array, flag: 'w' | 'wx'): Promise<void> {
  const file = await open(path, flag, FILE_MODE)
  try {
    await file.chmod(FILE_MODE)
    await file.writeFile(bytes)
    await file.sync()
  } finally {
    await file.close()
  }
}

/** Replaces a small file whole. Only one process writes it. */
export async function replaceFile(url: string, text: string): Promise<void> {
  const [path, bytes] = [pathOf(url), Buffer.from(text)]
  try {
    await createFolderOf(url)
    await write(`${path}.new`, bytes, 'w')
    await rename(`${path}.new`, path)
    await syncFolderOf(url)
  } catch (error) {
    if (!isFolderExhausted(error) || (await sizeOf(url)) !== bytes.length) throw error
    await overwrite(path, bytes)
  }
}

/** A full store has no room for a second file, and needs none for bytes that are replaced where they are. */
async function overwrite(path: string, bytes: Uint8Array): Promise<void> {
  const file = await open(path, 'r+')
  try {
    await file.write(bytes, 0, bytes.length, 0)
    await file.sync()
  } finally {
    await file.close()
  }
}

/** The text of a small file; undefined if the file does not exist. */
export async function readText(url: string): Promise<string | undefined> {
  try {
    return await readFile(pathOf(url), 'utf8')
  } catch (error) {
    if (isMissing(error)) return undefined
    throw error
  }
}

/** Names in a folder, some at a time; none if there is no folder. */
export async function* namesIn(url: string): AsyncGenerator<{ name: string; isFolder: boolean }> {
  let folder
  try {
    folder = await opendir(pathOf(url))
  } catch (error) {
    if (isMissing(error)) return
    throw error
  }
  for await (const entry of folder) yield { name: entry.name, isFolder: entry.isDirectory() }
}

/** Nothing is below a file either. */
const isMissing = (error: unknown) => ['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')

/** A new file is durable only when its folder is. */
export async function syncFolderOf(url: string): Promise<void> {
  await syncPath(dirname(pathOf(url)))
}

/** The size in bytes; undefined: there is no such file. */
export async function sizeOf(url: string): Promise<number | undefined> {
  try {
    return (await stat(pathOf(url))).size
  } catch (error) {
    if (isMissing(error)) return undefined
    throw error
  }
}

/** When the file was last written, in milliseconds; undefined: there is no such file. */
export async function writtenAtMs(url: string): Promise<number | undefined> {
  try {
    return (await stat(pathOf(url))).mtimeMs
  } catch (error) {
    if (isMissing(error)) return undefined
    throw error
  }
}

/** A file that is gone is no error. */
export async function removeFile(url: string): Promise<void> {
  try {
    await rm(pathOf(url), { force: true })
  } catch (error) {
    if (!isMissing(error)) throw error
  }
}

const REASONS: Readonly<Record<string, string>> = {
  ENOSPC: 'it is full',
  EDQUOT: 'the quota of the user is used up',
  EACCES: 'the user of the process may not write there',
  EPERM: 'the user of the process may not write there',
  EROFS: 'it is mounted read-only',
  ENOENT: 'a folder is missing',
  ENOTDIR: 'a file is in the place of a folder',
  EISDIR: 'a folder is in the place of a file',
  ESTALE: 'its mount is stale',
  EIO: 'its device reports errors',
}

/** The system calls that only an error of a file names. */
const OF_FILES = new Set([
  'access',
  'chmod',
  'close',
  'fchmod',
  'fsync',
  'lstat',
  'mkdir',
  'open',
  'opendir',
  'rename',
  'rm',
  'scandir',
  'stat',
  'unlink',
])
/** The system calls of sockets too, such as a connection to the database: with these the code of the error decides. */
const OF_BOTH = new Set(['read', 'write'])

const EXHAUSTED = new Set(['ENOSPC', 'EDQUOT', 'EROFS', 'ESTALE', 'EIO'])

function errorOfFile(error: unknown): { code: string; syscall: string } | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const { code, syscall } = cause as NodeJS.ErrnoException
    if (code === undefined || syscall === undefined) continue
    if (OF_FILES.has(syscall) || (OF_BOTH.has(syscall) && code in REASONS)) return { code, syscall }
  }
  return undefined
}

/** What is wrong with the folder, if the error says that something is. */
export function folderFailure(error: unknown): string | undefined {
  const found = errorOfFile(error)
  return found === undefined
    ? undefined
    : `${REASONS[found.code] ?? 'it cannot be used'} (${found.code}, ${found.syscall})`
}

/** Whether nothing more can be written to the folder, whatever it is. */
export function isFolderExhausted(error: unknown): boolean {
  return EXHAUSTED.has(errorOfFile(error)?.code ?? '')
}

const MAX_FILE_BYTES = 128 * 1024 * 1024

/** The archive in folders. */
export function folderStore(): ArchiveStore {
  return {
    maxFileBytes: MAX_FILE_BYTES,
    async beginFile(url) {
      await createFolderOf(url)
      return {
        path: pathOf(url),
        write: () => Promise.resolve(),
        close: () => syncFolderOf(url),
        abort: () => Promise.resolve(),
      }
    },
    writeNewFile,
    async readText(url) {
      const text = await readText(url)
      return text === undefined ? undefined : { text, version: undefined }
    },
    replaceText: replaceFile,
    sizeOf,
    writtenAtMs,
    namesIn,
    async removeFiles(files) {
      const failed = new Map<string, unknown>()
      for (const { path } of files) await removeFile(path).catch((error: unknown) => failed.set(path, error))
      return failed
    },
    removeBegun: () => Promise.resolve(0),
    async warningFor(url) {
      return (await isHiddenFromGroup(url))
        ? 'the umask hides the archive from the group of its folder; set it to 027'
        : undefined
    },
  }
}
