/**
 * One budget for all bytes that wait for readers of this process, whatever they are connected by. What waits is what a
 * connection has queued itself and what its socket has not handed to the system. Beyond the budget the slowest readers are
 * disconnected, so that memory is bounded by a number and not by what readers do.
 */
import { monotonicMs } from '../time.ts'

export type Reader = {
  /** Bytes that wait for it now. */
  readonly waitingBytes: number
  /** Bytes kept for it that others may be kept too: they are counted once, by `keep`. */
  readonly keptBytes?: number
  /** Disconnects it and drops what waits. Called once, in a turn of its own. */
  cut(): void
}

/** What a reader is counted by. */
export type Account = {
  /** To be called when more or less waits. It may disconnect this reader or others. */
  update(): void
  /** It is gone. */
  close(): void
}

export type StreamBudget = {
  readonly maxBytes: number
  /** Bytes that wait, as they were counted last: an upper bound between two looks. */
  readonly waitingBytes: number
  /** Readers that were disconnected. */
  readonly cuts: number
  open(reader: Reader): Account
  /** So many bytes more, or less, are kept for readers together. */
  keep(bytes: number): void
}

/** Sockets of readers that count themselves. */
const counted = new WeakSet<object>()

/** Whether what waits in this socket is counted by whoever writes to it. */
export function isCounted(socket: object): boolean {
  return counted.has(socket)
}

/** From now on it is; gives the way to end that. */
export function countHere(socket: object): () => void {
  counted.add(socket)
  return () => void counted.delete(socket)
}

/** With less waiting a reader keeps pace. */
const PACE_BYTES = 64 * 1024
/** Where the budget was exceeded, readers are disconnected until so much of it is used: not one for each message. */
const RELIEVED = 0.9

type Entry = {
  reader: Reader
  bytes: number
  /** Since when it has not kept pace. */
  behindSinceMs: number | undefined
}

export function createStreamBudget(maxBytes: number, nowMs: () => number = monotonicMs): StreamBudget {
  const entries = new Set<Entry>()
  let waiting = 0
  let kept = 0
  let cuts = 0
  /** Readers are being disconnected. */
  let isRelieving = false

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

  /** Those that have been behind for the longest come first; where none is, those with the most waiting. */
  function slowest(): Entry[] {
    const holding = [...entries].filter((entry) => sizeOf(entry) > 0)
    return holding.toSorted((one, other) => slowness(one) - slowness(other) || sizeOf(other) - sizeOf(one))
  }

  function relieve(): void {
    if (isRelieving || waiting + kept <= maxBytes) return
    for (const entry of entries) measure(entry)
    let excess = waiting + kept - maxBytes
    if (excess <= 0) return
    excess += maxBytes * (1 - RELIEVED)
    const chosen: Entry[] = []
    for (const entry of slowest()) {
      if (excess <= 0) break
      excess -= sizeOf(entry)
      remove(entry)
      chosen.push(entry)
    }
    if (chosen.length === 0) return
    cuts += chosen.length
    isRelieving = true
    // Whoever called is in the middle of handing something to many readers.
    queueMicrotask(() => {
      for (const { reader } of chosen) reader.cut()
      isRelieving = false
      relieve()
    })
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
