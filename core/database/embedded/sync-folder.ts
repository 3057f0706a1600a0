import { closeSync, fsyncSync, openSync } from 'node:fs'

/** A rename is on disk only when its folder is. */
export function syncFolder(folder: string): void {
  const descriptor = openSync(folder, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
