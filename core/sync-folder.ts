/** Files and folders that are durable: what was renamed or written there survives a loss of power. */
import { closeSync, fsyncSync, openSync } from 'node:fs'
import { open, readdir, rename } from 'node:fs/promises'
import { dirname, join } from 'node:path'

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

/**
 * Replaces a small file: after a loss of power it is complete, or as it was. Its content and its name are durable when this resolves.
 * Two calls for one path must not overlap.
 */
export async function replaceFile(path: string, content: string | Uint8Array, mode: number): Promise<void> {
  const draft = `${path}.new`
  const file = await open(draft, 'w', mode)
  try {
    await file.chmod(mode)
    await file.writeFile(content)
    await file.sync()
  } finally {
    await file.close()
  }
  await rename(draft, path)
  await syncPath(dirname(path))
}
