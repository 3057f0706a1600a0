/** The requests and outcomes of the pool. */
import type { Call, CallOutcome, OutputName } from '#guests/calls/index.ts'
import type { GuestCall, GuestReply, StateEntry } from '#guests/wasm/index.ts'

export type RunRequest = {
  /** A runner process serves one domain for its whole life; empty: the platform. */
  domain: string
  /** Digest of the module, and its file in the module cache. */
  digest: string
  modulePath: string
  moduleBytes: number
  /** Folder of the transpiled form of a component; absent for a core module. */
  componentFolder?: string | undefined
  /** The call with its limits. */
  call: Call
  /** Wall-clock timeout from the start of the call; Infinity: none. */
  timeoutMs: number
  /** Called when the call begins, never after the outcome; called again if the run had to restart. */
  onStarted?: () => void
  /** Channel calls of the guest; without it all of them are refused. Never rejects. */
  onGuestCall?: (callId: number, call: GuestCall) => Promise<GuestReply>
  /** Streamed output of a longer run. */
  onOutput?: (output: OutputName, data: Uint8Array) => void
}

export type RunOutcome =
  /** `isStreamed`: its output was passed to `onOutput`. `memoryBytes`: of its instances; absent if its thread was ended, as `cpuMs` is. */
  | (CallOutcome & {
      durationMs: number
      cpuMs?: number
      memoryBytes?: number
      isStreamed?: boolean
      stateEntries?: StateEntry[]
    })
  /** Its runner was killed because of another run, or failed to start: retry it on this or another worker. */
  | { state: 'requeue'; cause: string }
  /** The caller's signal ended it. */
  | { state: 'stopped'; durationMs: number }

/** A request in the pool. */
export type PendingRun = {
  request: RunRequest
  moduleKey: string
  /** Changes with each assignment to a thread, so that late messages about an earlier one are recognized. */
  sequence: number
  hasEnded: boolean
  /** What happened since the last assignment: answered calls of the guest, a waiting one, bytes of output. */
  answeredCalls: number
  isCalling: boolean
  outputBytes: Record<OutputName, number>
  /** Number of output messages. */
  outputPieces: number
  handedOverMs: number
  /**
   * How much the runner had served (`servedBy`) at the last check since then at which it was within its budget: memory of earlier runs did
   * not exceed it.
   */
  withinMemoryAt: number | undefined
  end: (outcome: RunOutcome) => void
}
