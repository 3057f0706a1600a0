/** The host interface of a call. */
import type { GuestClock } from '../wasi/index.ts'
import type { GuestCall, GuestReply } from '../wasm/index.ts'

export type OutputName = 'stdout' | 'stderr'

export type GuestHost = {
  readonly clock: GuestClock
  /** Waits for the answer; ending the thread ends the wait. */
  call: (call: GuestCall) => GuestReply
  /** The guest wrote this, within its output limit. */
  wrote: (output: OutputName, data: Uint8Array) => void
  /** The guest is about to wait for this long. */
  beforeWait: (waitMs: number) => void
}
