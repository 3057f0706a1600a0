/**
 * One budget for all bytes that wait for readers of this process, on any protocol: bytes that a connection has queued and bytes
 * in its socket. Above the budget the slowest readers are disconnected, which bounds the memory. A message to many readers waits
 * for all of them briefly, so readers that were behind for less than a second are kept until twice the budget waits.
 */
import { monotonicMs } from '../time.ts'
import { STREAM_METRICS } from './metrics.ts'

export type StreamReader = {
  /** Bytes that wait for the reader now. */
  readonly waitingBytes: number
  /** Bytes kept for the reader that other readers may share. `keep` counts them once. */
  readonly keptBytes?: number
  /** Disconnects the reader and drops its waiting bytes. The budget calls it once, in a microtask. */
  cut(): void
}

/** The entry of a reader in the budget. */
export type BudgetEntry = {
  /** Call it when the waiting bytes change. It may disconnect this reader or others. */
  update(): void
  /** The reader has disconnected. */
  close(): void
}

export type StreamBudget = {
  readonly maxBytes: number
  /** The waiting bytes at the last count. Between two counts they are an upper bound. */
  readonly waitingBytes: number
  /** Readers that were disconnected. */
  readonly cuts: number
  open(reader: StreamReader): BudgetEntry
  /** Changes the number of bytes that are kept for several readers together. */
  keep(bytes: number): void
}

/** Sockets whose writer adds their waiting bytes to the budget itself. */
const counted = new WeakSet<object>()

/** Returns whether the writer of this socket adds its waiting bytes to the budget itself. */
export function isCountedByWriter(socket: object): boolean {
  return counted.has(socket)
}

/** Marks the socket as counted by its writer. Returns a function that removes the mark. */
export function markCountedByWriter(socket: object): () => void {
  counted.add(socket)
  return () => void counted.delete(socket)
}

/** A reader with fewer waiting bytes keeps pace. */
const PACE_BYTES = 64 * 1024
/** A reader that has been behind for a shorter time is not slow. */
const GRACE_MS = 1000
/** The multiple of the budget above which readers have no grace period. */
const CEILING = 2
/** The fraction of the budget to which disconnections reduce the waiting bytes, so that they are rare. */
const RELIEVED = 0.9

type Entry = {
  reader: StreamReader
  bytes: number
  /** The time at which it fell behind; undefined while it keeps pace. */
  behindSinceMs: number | undefined
}

export function createStreamBudget(maxBytes: number, nowMs: () => number = monotonicMs): StreamBudget {
  const entries = new Set<Entry>()
  let waiting = 0
  let kept = 0
  let cuts = 0
  /** Readers are being disconnected. */
  let isRelieving = false
  let exceededSinceMs: number | undefined
  let looking: NodeJS.Timeout | undefined

  function measure(entry: Entry): void {
    const { waitingBytes } = entry.reader
    waiting += waitingBytes - entry.bytes
    entry.bytes = waitingBytes
    if (waitingBytes <= PACE_BYTES) entry.behindSinceMs = undefined
    else entry.behindSinceMs ??= nowMs()
  }

  function remove(entry: Entry): void {
    if (entries.delete(entry)) waiting -= entry.bytes
  }

  /** Readers that have been behind for longest first; among equals, those with the most waiting bytes. */
  function slowest(): Entry[] {
    const holding = [...entries].filter((entry) => sizeOf(entry) > 0)
    return holding.toSorted((one, other) => slowness(one) - slowness(other) || sizeOf(other) - sizeOf(one))
  }

  function relieve(): void {
    if (isRelieving) return
    if (waiting + kept > maxBytes) for (const entry of entries) measure(entry)
    const total = waiting + kept
    if (total <= maxBytes) {
      exceededSinceMs = undefined
      return
    }
    exceededSinceMs ??= nowMs()
    const sparesNobody = total > maxBytes * CEILING || nowMs() - exceededSinceMs >= GRACE_MS
    let excess = total - maxBytes * RELIEVED
    const chosen: Entry[] = []
    for (const entry of slowest()) {
      if (excess <= 0 || (!sparesNobody && nowMs() - slowness(entry) < GRACE_MS)) break
      excess -= sizeOf(entry)
      remove(entry)
      chosen.push(entry)
    }
    if (chosen.length === 0) return lookAgain()
    cuts += chosen.length
    STREAM_METRICS.cuts.add({}, chosen.length)
    isRelieving = true
    // The caller may be passing a message to many readers.
    queueMicrotask(() => {
      for (const { reader } of chosen) reader.cut()
      isRelieving = false
      relieve()
    })
  }

  function lookAgain(): void {
    looking ??= setTimeout(() => {
      looking = undefined
      relieve()
    }, GRACE_MS).unref()
  }

  return {
    maxBytes,
    get waitingBytes() {
      return waiting + kept
    },
    get cuts() {
      return cuts
    },
    open(reader) {
      const entry: Entry = { reader, bytes: 0, behindSinceMs: undefined }
      entries.add(entry)
      return {
        update() {
          if (!entries.has(entry)) return
          measure(entry)
          relieve()
        },
        close: () => remove(entry),
      }
    },
    keep(bytes) {
      kept += bytes
      relieve()
    },
  }
}

function sizeOf({ bytes, reader }: Entry): number {
  return bytes + (reader.keptBytes ?? 0)
}

function slowness({ behindSinceMs }: Entry): number {
  return behindSinceMs ?? Number.MAX_VALUE
}
