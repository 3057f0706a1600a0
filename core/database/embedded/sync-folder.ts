import { closeSync, fsyncSync, openSync } from 'node:fs'

/** A rename is durable only when its folder is synced. */
export function syncFolder(folder: string): void {
  const descriptor = openSync(folder, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
