/** Resident memory of another process. */
import { readFileSync } from 'node:fs'

const PAGE_SIZE_BYTES = 4096

/** 0 if the process has exited; undefined if the system does not report it. */
export function residentBytesOf(pid: number | undefined): number | undefined {
  if (process.platform !== 'linux' || pid === undefined) return undefined
  try {
    const resident = readFileSync(`/proc/${pid}/statm`, 'latin1').split(' ')[1]
    return Number(resident) * PAGE_SIZE_BYTES
  } catch {
    return 0
  }
}
