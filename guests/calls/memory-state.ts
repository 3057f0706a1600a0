/** State in memory, for trials and tests: it lives as long as this object. */
import { compareText } from '#core/text.ts'
import { MAX_STATE_KEYS_LISTED, refuseCall } from '../wasm/index.ts'
import type { GuestReply, StateBucket, StateCall, StateEntry, StateValues } from '../wasm/index.ts'

type Stored = { version: number; value: string }

export class MemoryState {
  readonly #values = new Map<StateBucket, Map<string, Stored>>()
  #version = 0

  /** `hasClient`: a message of a client started the run. */
  answer(call: StateCall, { hasClient }: { hasClient: boolean }): GuestReply {
    if (call.bucket === 'client' && !hasClient) return refuseCall('not_found', 'no message of a client started the run')
    if (call.kind === 'state_open') return { ok: true, records: '' }
    const stored = this.#of(call.bucket)
    if (call.kind === 'state_keys') {
      const keys = [...stored.keys()].filter((key) => compareText(key, call.after) > 0).toSorted(compareText)
      return { ok: true, records: JSON.stringify(keys.slice(0, MAX_STATE_KEYS_LISTED)) }
    }
    const values: StateValues = call.keys.map((key) => {
      const found = stored.get(key)
      return found === undefined ? null : [found.version, found.value]
    })
    return { ok: true, records: JSON.stringify(values) }
  }

  /** A call has completed. */
  write(entries: readonly StateEntry[]): void {
    for (const { bucket, key, value } of entries) {
      if (value === undefined) continue
      if (value === null) this.#of(bucket).delete(key)
      else this.#of(bucket).set(key, { version: ++this.#version, value })
    }
  }

  /** All values in base64, by their keys. */
  get entries(): { bucket: StateBucket; key: string; value: string }[] {
    return [...this.#values].flatMap(([bucket, stored]) =>
      [...stored]
        .toSorted(([one], [other]) => compareText(one, other))
        .map(([key, { value }]) => ({ bucket, key, value })),
    )
  }

  #of(bucket: StateBucket): Map<string, Stored> {
    let stored = this.#values.get(bucket)
    if (stored === undefined) this.#values.set(bucket, (stored = new Map()))
    return stored
  }
}
