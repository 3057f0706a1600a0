/**
 * Watches the free disk space, so that writes are rejected before PostgreSQL meets a full disk, on which it stops with a panic.
 */
import { statfsSync } from 'node:fs'
import { statfs } from 'node:fs/promises'

export type DiskSpace = { freeBytes: number; totalBytes: number }

export type DiskGuardOptions = {
  /** Any path on the file system to watch. */
  path: string
  minFreeBytes?: number
  /** A fraction of the file system, 0 to 1. */
  minFreeFraction?: number
  intervalMs?: number
}

export type DiskGuard = {
  /** The result of the last check, which is at most one interval old. False when the check failed. */
  hasRoom(): boolean
  /** Checks now. */
  refresh(): Promise<void>
  close(): void
}

export const MIN_FREE_BYTES = 1024 ** 3
export const MIN_FREE_FRACTION = 0.05
const INTERVAL_MS = 2000

/**
 * The space that an ordinary user may still write, without the blocks that are reserved for root. Throws the file system's
 * error for a path that does not exist.
 */
export async function diskSpace(path: string): Promise<DiskSpace> {
  return toSpace(await statfs(path))
}

/** Checks at once, so that `hasRoom` is correct from the start. Throws for a path that does not exist. */
export function createDiskGuard(options: DiskGuardOptions): DiskGuard {
  const { path, minFreeBytes = MIN_FREE_BYTES, minFreeFraction = MIN_FREE_FRACTION } = options
  const isEnough = ({ freeBytes, totalBytes }: DiskSpace) =>
    freeBytes >= minFreeBytes && freeBytes >= totalBytes * minFreeFraction
  let room = isEnough(toSpace(statfsSync(path)))
  let isLooking = false
  const refresh = async () => {
    // A file system that hangs must not accumulate checks.
    if (isLooking) return
    isLooking = true
    try {
      room = isEnough(await diskSpace(path))
    } catch {
      room = false
    } finally {
      isLooking = false
    }
  }
  const timer = setInterval(() => void refresh(), options.intervalMs ?? INTERVAL_MS)
  timer.unref()
  return { hasRoom: () => room, refresh, close: () => clearInterval(timer) }
}

function toSpace(figures: { bavail: number; blocks: number; bsize: number }): DiskSpace {
  return { freeBytes: figures.bavail * figures.bsize, totalBytes: figures.blocks * figures.bsize }
}
