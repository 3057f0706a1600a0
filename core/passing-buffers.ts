/**
 * Buffers that pass through a process leave garbage outside the heap of V8, which begins to look at such memory only when
 * there are some 64 MiB of it. Whoever carries large things says how much went by, and the young generation, where all
 * of it is, is collected every three megabytes: about a millisecond each, and the process does not grow by what it carries.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { monotonicMs } from './time.ts'

const COLLECT_AFTER_BYTES = 3 * 1024 * 1024
/** A buffer is copied two or three times on its way through HTTP or gRPC. */
const COPIES = 3
const MIN_PAUSE_MS = 5

type Collect = (options: { type: 'minor'; execution: 'sync' }) => void

let collect: Collect | undefined
let passedBytes = 0
let nextMs = 0

/** To be called with the size of every buffer that went by and is not kept; `copies`: how often its bytes were copied. */
export function countPassing(sizeBytes: number, copies = COPIES): void {
  passedBytes += sizeBytes * copies
  if (passedBytes < COLLECT_AFTER_BYTES) return
  if (monotonicMs() < nextMs) return
  passedBytes = 0
  collect ??= findCollect()
  collect({ type: 'minor', execution: 'sync' })
  nextMs = monotonicMs() + MIN_PAUSE_MS
}

// The flag makes the function appear in contexts that are made after it; here it stays out of everybody's sight.
function findCollect(): Collect {
  setFlagsFromString('--expose-gc')
  return runInNewContext('gc') as Collect
}
