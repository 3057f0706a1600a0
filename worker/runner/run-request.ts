/** What the pool takes and what it answers. */
import type { Call } from '../runtime/call.ts'
import type { GuestCall, GuestReply, OutputName } from '../runtime/guest-host.ts'
import type { CallOutcome } from '../runtime/outcome.ts'

export type RunRequest = {
  /** A runner process serves one domain for all its life; empty: the platform's own. */
  domain: string
  /** Digest of the module, and the file that holds it in the module cache. */
  digest: string
  modulePath: string
  moduleBytes: number
  /** Where the transpiled form of a component lies; absent for a core module. */
  componentFolder?: string | undefined
  /** What the guest is given, and its bounds. */
  call: Call
  /** Wall-clock time from the start of the call; Infinity: none. */
  timeoutMs: number
  /** Called when the call begins, never after the outcome; once more when the run had to begin anew. */
  onStarted?: () => void
  /** What the guest asks of channels; without it all of it is refused. Never rejects. */
  onGuestCall?: (callId: number, call: GuestCall) => Promise<GuestReply>
  /** Output of a run that takes its time, as it comes. */
  onOutput?: (output: OutputName, data: Uint8Array) => void
}

export type RunOutcome =
  /** `isStreamed`: its output went to `onOutput`. */
  | (CallOutcome & { durationMs: number; isStreamed?: boolean })
  /** Its runner was killed because of somebody else, or could not be started: try again, here or elsewhere. */
  | { state: 'requeue'; cause: string }
  /** The caller's signal ended it. */
  | { state: 'stopped'; durationMs: number }

/** A request on its way through the pool. */
export type PendingRun = {
  request: RunRequest
  moduleKey: string
  /** New at each hand-over to a thread, so that a late message about an earlier one is known for what it is. */
  sequence: number
  hasEnded: boolean
  /** Since the last hand-over: calls of the guest that were answered, one that waits, bytes that it wrote. */
  answeredCalls: number
  isCalling: boolean
  outputBytes: Record<OutputName, number>
  /** Pieces in which they came. */
  outputPieces: number
  handedOverMs: number
  /** The runner was within its memory at a look since then: what it held before is not what it ended of. */
  wasWithinMemory: boolean
  end: (outcome: RunOutcome) => void
}
