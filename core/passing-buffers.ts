/**
 * Buffers that pass through a process become garbage outside of V8's heap, which V8 collects only from about 64 MiB on. Code that
 * carries large buffers counts them here, and the young generation, which contains them all, is collected every three
 * megabytes. This takes about a millisecond, and the memory of the process stays bounded.
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

/** Call it with the size of each buffer that was passed on and is not kept; `copies`: how often its bytes were copied. */
export function countPassing(sizeBytes: number, copies = COPIES): void {
  passedBytes += sizeBytes * copies
  if (passedBytes < COLLECT_AFTER_BYTES) return
  if (monotonicMs() < nextMs) return
  passedBytes = 0
  collect ??= findCollect()
  collect({ type: 'minor', execution: 'sync' })
  nextMs = monotonicMs() + MIN_PAUSE_MS
}

// The flag exposes `gc` in contexts that are created after it; the global scope of this process does not get it.
function findCollect(): Collect {
  setFlagsFromString('--expose-gc')
  return runInNewContext('gc') as Collect
}
