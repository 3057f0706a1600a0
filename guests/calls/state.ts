/**
 * State during one call: values are read once and kept, writes are buffered. A call that completes reports both, and the
 * manager writes them with the result if nobody has changed meanwhile what the call has read.
 */
import { compareText } from '#core/text.ts'
import {
  MAX_STATE_BYTES_OF_RUN,
  MAX_STATE_KEYS_LISTED,
  MAX_STATE_KEYS_OF_RUN,
  MAX_STATE_KEYS_READ,
  MAX_STATE_VALUE_BYTES,
  NO_VERSION,
  refusalOfKey,
} from '../wasm/index.ts'
import type { GuestCall, StateBucket, StateEntry, StateValues } from '../wasm/index.ts'
import type { GuestHost } from './guest-host.ts'
import type { CallOutcome, CallReport } from './outcome.ts'

/** An operation was refused: the guest gets the kind as a code, or the message as an `err`. */
export class StateRefusal extends Error {
  readonly kind: string

  constructor(kind: string, message: string) {
    super(message)
    this.kind = kind
  }
}

type Entry = {
  bucket: StateBucket
  key: string
  /** Undefined: it was not read. */
  version: number | undefined
  /** Undefined: there is none. */
  value: Uint8Array | undefined
  isWritten: boolean
}

export class GuestState {
  readonly #host: Pick<GuestHost, 'call'>
  readonly #entries = new Map<string, Entry>()
  readonly #open = new Set<StateBucket>()
  #writtenBytes = 0

  constructor(host: Pick<GuestHost, 'call'>) {
    this.#host = host
  }

  /** Throws a StateRefusal of kind `not_found` if the run has no such bucket. */
  open(bucket: StateBucket): void {
    if (this.#open.has(bucket)) return
    this.#ask({ kind: 'state_open', bucket })
    this.#open.add(bucket)
  }

  get(bucket: StateBucket, key: string): Uint8Array | undefined {
    return this.getMany(bucket, [key])[0]
  }

  getMany(bucket: StateBucket, keys: readonly string[]): (Uint8Array | undefined)[] {
    for (const key of keys) requireKey(key)
    const missing = [...new Set(keys)].filter((key) => this.#find(bucket, key) === undefined)
    this.#requireRoom(missing.length)
    for (let at = 0; at < missing.length; at += MAX_STATE_KEYS_READ)
      this.#read(bucket, missing.slice(at, at + MAX_STATE_KEYS_READ))
    return keys.map((key) => this.#find(bucket, key)?.value)
  }

  /** A copy of the value is kept. */
  set(bucket: StateBucket, key: string, value: Uint8Array): void {
    if (value.length > MAX_STATE_VALUE_BYTES)
      throw new StateRefusal('too_large', `a value must be at most ${MAX_STATE_VALUE_BYTES} bytes`)
    this.#write(bucket, key, value.slice())
  }

  delete(bucket: StateBucket, key: string): void {
    this.#write(bucket, key, undefined)
  }

  /** The next keys after this one in the order of their bytes, at most `MAX_STATE_KEYS_LISTED`, as they are with the writes of this call. */
  keysAfter(bucket: StateBucket, after: string): string[] {
    if (after !== '') requireKey(after)
    this.open(bucket)
    const stored = JSON.parse(this.#ask({ kind: 'state_keys', bucket, after })) as string[]
    const last = stored.length < MAX_STATE_KEYS_LISTED ? undefined : stored.at(-1)
    const written = [...this.#entries.values()].filter(
      (entry) =>
        entry.isWritten &&
        entry.bucket === bucket &&
        compareText(entry.key, after) > 0 &&
        (last === undefined || compareText(entry.key, last) <= 0),
    )
    if (written.length === 0) return stored
    const keys = new Set(stored)
    for (const { key, value } of written) {
      if (value === undefined) keys.delete(key)
      else keys.add(key)
    }
    const sorted = [...keys].toSorted(compareText)
    // All of a full page were deleted by this call: the next page begins behind it.
    if (sorted.length === 0 && last !== undefined) return this.keysAfter(bucket, last)
    return sorted
  }

  allKeys(bucket: StateBucket): string[] {
    const keys: string[] = []
    for (let page = this.keysAfter(bucket, ''); page.length > 0; page = this.keysAfter(bucket, keys.at(-1) ?? ''))
      keys.push(...page)
    return keys
  }

  /** What the manager must check and write; undefined: nothing was written. */
  changes(): StateEntry[] | undefined {
    const entries = [...this.#entries.values()]
    if (!entries.some(({ isWritten }) => isWritten)) return undefined
    return entries.map(({ bucket, key, version, value, isWritten }) => ({
      bucket,
      key,
      ...(version === undefined ? {} : { version }),
      ...(isWritten ? { value: value === undefined ? null : value.toBase64() } : {}),
    }))
  }

  #read(bucket: StateBucket, keys: readonly string[]): void {
    const values = JSON.parse(this.#ask({ kind: 'state_get', bucket, keys: [...keys] })) as StateValues
    this.#open.add(bucket)
    for (const [index, key] of keys.entries()) {
      const found = values[index]
      this.#entries.set(placeOf(bucket, key), {
        bucket,
        key,
        version: found?.[0] ?? NO_VERSION,
        value: found === null || found === undefined ? undefined : Uint8Array.fromBase64(found[1]),
        isWritten: false,
      })
    }
  }

  #write(bucket: StateBucket, key: string, value: Uint8Array | undefined): void {
    requireKey(key)
    this.open(bucket)
    const before = this.#find(bucket, key)
    if (before === undefined) this.#requireRoom(1)
    const bytes = this.#writtenBytes - sizeOf(before) + sizeOf({ key, value, isWritten: true })
    if (bytes > MAX_STATE_BYTES_OF_RUN)
      throw new StateRefusal('too_large', `a run can write at most ${MAX_STATE_BYTES_OF_RUN} bytes of state`)
    this.#writtenBytes = bytes
    this.#entries.set(placeOf(bucket, key), { bucket, key, version: before?.version, value, isWritten: true })
  }

  #find(bucket: StateBucket, key: string): Entry | undefined {
    return this.#entries.get(placeOf(bucket, key))
  }

  #requireRoom(added: number): void {
    if (this.#entries.size + added > MAX_STATE_KEYS_OF_RUN)
      throw new StateRefusal('too_large', `a run can use at most ${MAX_STATE_KEYS_OF_RUN} keys of its state`)
  }

  #ask(call: GuestCall): string {
    const reply = this.#host.call(call)
    if (!reply.ok) throw new StateRefusal(reply.kind, reply.message)
    return reply.records
  }
}

/** The part of a report: only a call that completed writes state. */
export function stateOf(state: GuestState, outcome: CallOutcome): Pick<CallReport, 'stateEntries'> {
  const changes = outcome.state === 'completed' ? state.changes() : undefined
  return changes === undefined ? {} : { stateEntries: changes }
}

const placeOf = (bucket: StateBucket, key: string) => `${bucket} ${key}`

function sizeOf(entry: Pick<Entry, 'key' | 'value' | 'isWritten'> | undefined): number {
  if (entry === undefined || !entry.isWritten) return 0
  return new TextEncoder().encode(entry.key).length + (entry.value?.length ?? 0)
}

function requireKey(key: string): void {
  const refusal = refusalOfKey(key)
  if (refusal !== undefined) throw new StateRefusal('malformed', refusal)
}
