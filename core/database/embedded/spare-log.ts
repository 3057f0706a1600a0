/**
 * Spare segments of the write-ahead log for a new cluster. PostgreSQL makes a segment when it needs one, with everybody who commits
 * waiting: 16 MB of zeros and five syncs, 35 to 60 ms each, until enough of them go round. Here they are made while initdb works, and
 * PostgreSQL takes them as it takes those that it recycled itself.
 */
import { mkdirSync, readdirSync, statSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { open, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { giveTo } from './account.ts'
import type { Account } from './account.ts'
import { freeDiskBytes } from './disk-guard.ts'
import { syncFolder } from './sync-folder.ts'

/** initdb's default. */
const SEGMENT_BYTES = 16 * 1024 * 1024
/** As many as PostgreSQL keeps itself later (`min_wal_size`). */
export const SPARE_LOG_BYTES = 512 * 1024 * 1024
/** Of what the disk has free, so that a small one is not filled with them. */
const SPARE_SHARE_OF_FREE = 0.02
const CHUNK_BYTES = 1024 * 1024
/** A segment is named by timeline, and number in two parts of 8 hexadecimal digits, the second below 0x100. */
const SEGMENT_NAME = /^([0-9A-F]{8})([0-9A-F]{8})([0-9A-F]{8})$/
const SEGMENTS_PER_PART = 0x100

export type SpareLog = {
  /** Ends the making, and puts what was made behind the last segment of a cluster that no server runs on. Gives how many those are. */
  install(clusterDir: string): Promise<number>
  /** Ends the making, and removes what was made and not installed. Never rejects. */
  discard(): Promise<void>
}

/** Begins to make segments in `folder`, a new one on the file system of the cluster, and goes on until enough are there or it is ended. */
export function makeSpareLog(folder: string, account: Account): SpareLog {
  const made: string[] = []
  let isEnded = false

  async function fill(file: FileHandle, zeros: Buffer): Promise<boolean> {
    for (let bytes = 0; bytes < SEGMENT_BYTES; bytes += CHUNK_BYTES) {
      if (isEnded) return false
      await file.write(zeros)
    }
    // What is only in memory would be written by the first commit into the segment.
    await file.sync()
    return true
  }

  async function make(): Promise<void> {
    mkdirSync(folder, { mode: 0o700 })
    const bytes = Math.min(SPARE_LOG_BYTES, (await freeDiskBytes(folder)) * SPARE_SHARE_OF_FREE)
    const zeros = Buffer.alloc(CHUNK_BYTES)
    while (!isEnded && (made.length + 1) * SEGMENT_BYTES <= bytes) {
      const path = join(folder, String(made.length))
      const file = await open(path, 'wx', 0o600)
      try {
        if (await fill(file, zeros)) made.push(path)
      } finally {
        await file.close()
      }
    }
  }

  const making = make()
  // Asked for later, where it is known whether the cluster could be made.
  making.catch(() => undefined)
  const end = async () => {
    isEnded = true
    await making
  }

  return {
    async install(clusterDir) {
      await end()
      const logDir = join(clusterDir, 'pg_wal')
      const last = lastSegment(logDir)
      for (const [index, path] of made.entries()) {
        giveTo(account, path)
        await rename(path, join(logDir, nameAfter(last, index + 1)))
      }
      syncFolder(logDir)
      return made.splice(0).length
    },
    async discard() {
      await end().catch(() => undefined)
      await rm(folder, { recursive: true, force: true }).catch(() => undefined)
    },
  }
}

function lastSegment(logDir: string): string {
  const last = readdirSync(logDir)
    .filter((name) => SEGMENT_NAME.test(name))
    .toSorted()
    .at(-1)
  if (last === undefined || statSync(join(logDir, last)).size !== SEGMENT_BYTES) {
    throw new Error(`${logDir} holds no segment of ${SEGMENT_BYTES} bytes`)
  }
  return last
}

/** The name of the segment that comes so many after another. */
export function nameAfter(segment: string, count: number): string {
  const [, timeline = '', high = '', low = ''] = SEGMENT_NAME.exec(segment) ?? []
  const number = Number.parseInt(high, 16) * SEGMENTS_PER_PART + Number.parseInt(low, 16) + count
  return timeline + hex(Math.floor(number / SEGMENTS_PER_PART)) + hex(number % SEGMENTS_PER_PART)
}

const hex = (number: number) => number.toString(16).toUpperCase().padStart(8, '0')
