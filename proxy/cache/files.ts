/** Writes files atomically and durably, also with kill -9 and power loss. */
import { randomUUID } from 'node:crypto'
import { open, readdir, rename, rm, stat } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { isDiskFull } from '#core/disk-full.ts'
import { ServiceError } from '#core/errors/index.ts'

/** A temporary file that was not written for this long belongs to a dead process: pulls have shorter deadlines. */
export const ABANDONED_AFTER_MS = 15 * 60_000

export type TemporaryFile = { path: string; handle: FileHandle }

/** A private file; only `moveIntoPlace` makes it visible. */
export async function createTemporary(folder: string): Promise<TemporaryFile> {
  const path = join(folder, randomUUID())
  return { path, handle: await open(path, 'wx', 0o600) }
}

/**
 * Renames the closed file to its name. The content is synced before and the folder after, so that a name never refers to
 * incomplete content. Concurrent writers of one name are safe: they have the same bytes, and the last one stays.
 */
export async function moveIntoPlace(file: TemporaryFile, path: string): Promise<void> {
  await file.handle.sync()
  await file.handle.close()
  await rename(file.path, path)
  await syncFolder(join(path, '..'))
}

/** Removes a temporary file in any state. */
export async function abandon(file: TemporaryFile): Promise<void> {
  await file.handle.close().catch(() => undefined) // closed already
  await rm(file.path, { force: true })
}

/** Removes files of killed processes. Files of a process that shares the folder are younger and stay. */
export async function removeAbandoned(folder: string, nowMs: number): Promise<void> {
  for (const name of await readdir(folder)) {
    const path = join(folder, name)
    const age = await stat(path).then(
      (found) => nowMs - found.mtimeMs,
      () => 0, // another process published or removed it meanwhile
    )
    if (age > ABANDONED_AFTER_MS) await rm(path, { force: true })
  }
}

/** A full disk is retryable: the run is tried again elsewhere or later. */
export function asDiskError(error: unknown): unknown {
  if (!isDiskFull(error)) return error
  return new ServiceError('unavailable', 'the disk of the module cache is full', { cause: error })
}

export function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT'
}

async function syncFolder(path: string): Promise<void> {
  // Windows cannot open folders; its rename is journalled.
  if (process.platform === 'win32') return
  const handle = await open(path, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
