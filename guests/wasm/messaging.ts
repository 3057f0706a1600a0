/**
 * The messaging interface of guests: imports of core modules (module `skein`) and interfaces of components. The server checks the
 * rights of a guest at each call.
 */
import type { HttpCall } from './http.ts'
import type { StateBucket } from './state.ts'
import type { ValueType } from './value-types.ts'

export const MESSAGING_MODULE = 'skein'

/** Pointers and lengths in bytes into the guest's memory; see docs/guides/write-a-module.md. */
export const MESSAGING_FUNCTIONS = {
  /** topic, payload: 0 when it is stored, otherwise a negative code. */
  publish: { params: ['i32', 'i32', 'i32', 'i32'], results: ['i32'] },
  /** query as JSON, buffer: the length of the answer, which is truncated to the buffer; otherwise a negative code. */
  read: { params: ['i32', 'i32', 'i32', 'i32'], results: ['i32'] },
  /** buffer: the length of the last error message. */
  last_error: { params: ['i32', 'i32'], results: ['i32'] },
} as const satisfies Record<string, { params: readonly ValueType[]; results: readonly ValueType[] }>

/** Interfaces of components with their functions. */
export const MESSAGING_INTERFACES: Record<string, readonly string[]> = {
  'skein:messaging/types@0.1.0': [],
  'skein:messaging/producer@0.1.0': ['send'],
  'skein:messaging/reader@0.1.0': ['read'],
}

/** Return codes for core modules, by kind of error. */
export const MESSAGING_CODES: Record<string, number> = {
  malformed: -1,
  forbidden: -2,
  not_found: -3,
  too_large: -4,
  rate_limited: -5,
  unavailable: -6,
  stale: -7,
}
export const MESSAGING_CODE_OTHER = -8

/** `topic`: a name and its levels, such as `readings/pump/4`. */
export type ChannelCall =
  | { kind: 'publish'; topic: string; payload: string }
  | { kind: 'read'; topic: string; name: string; from: number | null; to: number | null; limit: number }

/** Reads of the state; writes are part of the end of a call. */
export type StateCall =
  /** Whether the run has this bucket. */
  | { kind: 'state_open'; bucket: StateBucket }
  | { kind: 'state_get'; bucket: StateBucket; keys: string[] }
  /** The keys after this one. */
  | { kind: 'state_keys'; bucket: StateBucket; after: string }

export type GuestCall = ChannelCall | StateCall | HttpCall

export const isStateCall = (call: GuestCall): call is StateCall => call.kind.startsWith('state_')

/** `records` is JSON: of records, of `StateValues`, of keys, or an `HttpAnswer`; empty for a publication and for `state_open`. */
export type GuestReply = { ok: true; records: string } | { ok: false; kind: string; message: string }

export function refuseCall(kind: string, message: string): Extract<GuestReply, { ok: false }> {
  return { ok: false, kind, message }
}
