/**
 * One budget for all bytes that wait for readers of this process, whatever they are connected by. What waits is what a
 * connection has queued itself and what its socket has not handed to the system. Beyond the budget the slowest readers are
 * disconnected, so that memory is bounded by a number and not by what readers do. A message to many readers waits for all of
 * them for a moment: who keeps pace is spared for a second, as long as not more than twice the budget waits.
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
/** A reader that has been behind for less is not slow yet. */
const GRACE_MS = 1000
/** Beyond so much of the budget nobody is spared. */
const CEILING = 2
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

  /** Those that have been behind for the longest come first; where none is, those with the most waiting. */
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
    isRelieving = true
    // Whoever called is in the middle of handing something to many readers.
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
