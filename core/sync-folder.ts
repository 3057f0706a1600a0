/** Syncs folders, so that what was renamed or written there is durable. */
import { closeSync, fsyncSync, openSync } from 'node:fs'
import { open, readdir } from 'node:fs/promises'
import { join } from 'node:path'

/** File systems combine what is synced at the same time; Node has four threads for it. */
const SYNCED_AT_ONCE = 4

/** A rename is durable only when its folder is synced. */
export function syncFolder(folder: string): void {
  const descriptor = openSync(folder, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

/** Syncs the folder and all files and folders below it, which nothing may write to. Links are not followed. */
export async function syncTree(
  folder: string,
  sync: (path: string) => Promise<void> = syncPath,
  signal?: AbortSignal,
): Promise<void> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const below = entries.filter((entry) => entry.isFile() || entry.isDirectory())
  const paths = [folder, ...below.map((entry) => join(entry.parentPath, entry.name))].values()
  const syncRest = async () => {
    for (const path of paths) {
      signal?.throwIfAborted()
      await sync(path)
    }
  }
  await Promise.all(Array.from({ length: SYNCED_AT_ONCE }, syncRest))
}

/** Syncs a file, or a folder after a rename in it. */
export async function syncPath(path: string): Promise<void> {
  const file = await open(path, 'r')
  try {
    await file.sync()
  } finally {
    await file.close()
  }
}
