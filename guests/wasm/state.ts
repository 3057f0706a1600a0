/**
 * What guests keep between runs, as they use it: imports of core modules (module `skein`) and interfaces of components. Values are read when the
 * guest asks for them, and written with the result of the run.
 */
import type { ValueType } from './value-types.ts'

/** Pointers and lengths in bytes into the guest's memory; the first parameter is the bucket, an index of `STATE_BUCKETS`. */
export const STATE_FUNCTIONS = {
  /** bucket, key, buffer: the length of the value, which is truncated to the buffer; otherwise a negative code. */
  state_get: { params: ['i32', 'i32', 'i32', 'i32', 'i32'], results: ['i32'] },
  /** bucket, key, value: 0, otherwise a negative code. */
  state_set: { params: ['i32', 'i32', 'i32', 'i32', 'i32'], results: ['i32'] },
  /** bucket, key: 0, also if there is none; otherwise a negative code. */
  state_delete: { params: ['i32', 'i32', 'i32'], results: ['i32'] },
  /** bucket, the last key before, buffer: the length of a JSON array of the next keys, which is truncated to the buffer; otherwise a negative code. */
  state_keys: { params: ['i32', 'i32', 'i32', 'i32', 'i32'], results: ['i32'] },
} as const satisfies Record<string, { params: readonly ValueType[]; results: readonly ValueType[] }>

/** Interfaces of components without their version, with their functions; resource functions have the names of the binary format. */
export const STATE_INTERFACES: Record<string, readonly string[]> = {
  'wasi:keyvalue/store': [
    'open',
    ...['get', 'set', 'delete', 'exists', 'list-keys'].map((name) => `[method]bucket.${name}`),
  ],
  'wasi:keyvalue/atomics': ['increment', 'swap', '[static]cas.new', '[method]cas.current'],
  'wasi:keyvalue/batch': ['get-many', 'set-many', 'delete-many'],
}

/** The versions of these interfaces that tools of today name; Skein serves both alike. */
export const STATE_VERSIONS = ['0.2.0-draft', '0.2.0-draft2'] as const

/** `wasi:keyvalue/store@0.2.0-draft2` → `wasi:keyvalue/store`; undefined for any other name or version. */
export function stateInterface(name: string): string | undefined {
  const [known = '', version] = name.split('@')
  const isServed = STATE_VERSIONS.some((served) => served === version)
  return isServed && Object.hasOwn(STATE_INTERFACES, known) ? known : undefined
}

/** Whether a module with these imports, as they are described, uses state. */
export function usesState(imports: readonly { module: string; name: string }[]): boolean {
  return imports.some(
    ({ module, name }) =>
      stateInterface(module) !== undefined || (module === 'skein' && Object.hasOwn(STATE_FUNCTIONS, name)),
  )
}

/** Workers that offer these imports name it among their runtimes. */
export const STATE_RUNTIME = 'state'

/** Size of one value. */
export const MAX_STATE_VALUE_BYTES = 64 * 1024
/** Size of a key in UTF-8. */
export const MAX_STATE_KEY_BYTES = 256
/** Keys that one run can read and write. */
export const MAX_STATE_KEYS_OF_RUN = 1_000
/** Bytes of the keys and values that one run can write. */
export const MAX_STATE_BYTES_OF_RUN = 1024 * 1024
/** Keys in one answer: the largest values of so many fit into a message. */
export const MAX_STATE_KEYS_READ = 10
/** Names in one answer. */
export const MAX_STATE_KEYS_LISTED = 1_000

/** The buckets that a guest can open: that of all its runs, and that of the client whose message the run has. */
export const STATE_BUCKETS = ['task', 'client'] as const
export type StateBucket = (typeof STATE_BUCKETS)[number]

/** Version of a key without a value. */
export const NO_VERSION = 0

/**
 * A key that a run has read or written. `version`: the one that it read; absent: it did not read the key. `value` in base64, null: deleted;
 * absent: it did not write the key.
 */
export type StateEntry = { bucket: StateBucket; key: string; version?: number; value?: string | null }

/** The reply to `state_get`, as JSON: version and value in base64 of each key, in their order; null: there is none. */
export type StateValues = ([version: number, value: string] | null)[]

/** Returns what is wrong with a key; undefined: nothing. */
export function refusalOfKey(key: string): string | undefined {
  if (key === '') return 'a key must not be empty'
  if (key.includes('\0') || !key.isWellFormed()) return 'a key must be text without the character U+0000'
  const bytes = new TextEncoder().encode(key).length
  return bytes > MAX_STATE_KEY_BYTES ? `a key must be at most ${MAX_STATE_KEY_BYTES} bytes` : undefined
}
