/** The host interface of a run. */

/** `topic`: name or id of a granted channel, then a subtopic: `readings/pump/4`. Empty: the only granted channel. */
export type GuestCall =
  | { kind: 'publish'; topic: string; payload: string }
  | { kind: 'read'; topic: string; name: string; from: number | null; to: number | null; limit: number }

/** `records` is JSON; empty for a publication. */
export type GuestReply = { ok: true; records: string } | { ok: false; kind: string; message: string }

export type OutputName = 'stdout' | 'stderr'

export type GuestHost = {
  /** Waits for the answer; ending the thread ends the wait. */
  call: (call: GuestCall) => GuestReply
  /** The guest wrote this, within its output limit. */
  wrote: (output: OutputName, data: Uint8Array) => void
  /** The guest is about to wait for this long. */
  beforeWait: (waitMs: number) => void
}

/** Limit of records per read. */
export const MAX_READ_RECORDS = 1_000

export function refuseCall(kind: string, message: string): GuestReply {
  return { ok: false, kind, message }
}
