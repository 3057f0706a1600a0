/** The host functions with which guests use their state, for core modules and for components. */
import type { Interfaces } from '../wasi/index.ts'
import { STATE_BUCKETS } from '../wasm/index.ts'
import type { STATE_FUNCTIONS, StateBucket } from '../wasm/index.ts'
import type { CoreMemory } from './core-memory.ts'
import { StateRefusal } from './state.ts'
import type { GuestState } from './state.ts'

type CoreImports = Record<keyof typeof STATE_FUNCTIONS, (...parameters: number[]) => number>

export function coreState(state: GuestState, memory: CoreMemory): CoreImports {
  const attempt = (work: () => number): number => {
    try {
      return work()
    } catch (error) {
      if (error instanceof StateRefusal) return memory.refuse(error)
      // The decoder of a key that is not UTF-8.
      if (error instanceof TypeError) return memory.refuse({ kind: 'malformed', message: 'a key must be UTF-8' })
      throw error
    }
  }
  return {
    state_get: (bucket = 0, keyAt = 0, keyBytes = 0, bufferAt = 0, capacity = 0) =>
      attempt(() => {
        const value = state.get(bucketOf(bucket), memory.text(keyAt, keyBytes))
        if (value === undefined) throw new StateRefusal('not_found', 'the key has no value')
        return memory.write(bufferAt, capacity, value)
      }),
    state_set: (bucket = 0, keyAt = 0, keyBytes = 0, valueAt = 0, valueBytes = 0) =>
      attempt(() => {
        state.set(bucketOf(bucket), memory.text(keyAt, keyBytes), memory.bytes(valueAt, valueBytes))
        return 0
      }),
    state_delete: (bucket = 0, keyAt = 0, keyBytes = 0) =>
      attempt(() => {
        state.delete(bucketOf(bucket), memory.text(keyAt, keyBytes))
        return 0
      }),
    state_keys: (bucket = 0, afterAt = 0, afterBytes = 0, bufferAt = 0, capacity = 0) =>
      attempt(() => {
        const keys = state.keysAfter(bucketOf(bucket), memory.text(afterAt, afterBytes))
        return memory.writeText(bufferAt, capacity, JSON.stringify(keys))
      }),
  }
}

function bucketOf(number: number): StateBucket {
  const bucket = STATE_BUCKETS[number]
  if (bucket === undefined) throw new StateRefusal('malformed', 'a bucket must be 0 or 1')
  return bucket
}

const errOf = ({ message }: StateRefusal): unknown => ({ tag: 'other', val: message })

/** Does the work; a refusal becomes an `err` of wasi:keyvalue, which transpiled components expect as a thrown plain value. */
function orErr<T>(work: () => T, toErr = errOf): T {
  try {
    return work()
  } catch (error) {
    throw error instanceof StateRefusal ? toErr(error) : error // oxlint-disable-line typescript/only-throw-error -- `err` in transpiled components
  }
}

const MAX_COUNT = 2n ** 63n - 1n
const WHOLE_NUMBER = /^-?\d{1,19}$/

/** Counters are decimal text, which people can read; no value is 0. */
function counted(value: Uint8Array | undefined, delta: bigint): bigint {
  const text = value === undefined ? '0' : new TextDecoder().decode(value)
  if (!WHOLE_NUMBER.test(text)) throw new StateRefusal('malformed', 'the value is not a whole number as decimal text')
  const sum = BigInt(text) + delta
  if (sum > MAX_COUNT || sum < -MAX_COUNT - 1n) throw new StateRefusal('malformed', 'the number exceeds 64 bits')
  return sum
}

/** Handles of guests hold nothing to release. */
class Resource {
  [Symbol.dispose](): void {}
}

class Bucket extends Resource {
  readonly state: GuestState
  readonly bucket: StateBucket

  constructor(state: GuestState, bucket: StateBucket) {
    super()
    this.state = state
    this.bucket = bucket
  }

  get(key: string): Uint8Array | undefined {
    return orErr(() => this.state.get(this.bucket, key))
  }

  set(key: string, value: Uint8Array): void {
    orErr(() => this.state.set(this.bucket, key, value))
  }

  delete(key: string): void {
    orErr(() => this.state.delete(this.bucket, key))
  }

  exists(key: string): boolean {
    return this.get(key) !== undefined
  }

  /** All of them: the cursors of the two drafts have different types. */
  listKeys(): { keys: string[]; cursor: undefined } {
    return { keys: orErr(() => this.state.allKeys(this.bucket)), cursor: undefined }
  }
}

class Cas extends Resource {
  readonly bucket: Bucket
  readonly key: string
  readonly seen: Uint8Array | undefined

  constructor(bucket: Bucket, key: string) {
    super()
    this.bucket = bucket
    this.key = key
    this.seen = bucket.get(key)
  }

  static new(bucket: Bucket, key: string): Cas {
    return new Cas(bucket, key)
  }

  current(): Uint8Array | undefined {
    return this.seen
  }
}

/** Interfaces by name without version. A call runs alone with its state: a conflict with another run is found when both have ended. */
export function componentState(state: GuestState): Interfaces {
  return {
    'wasi:keyvalue/store': {
      Bucket,
      open(identifier: string): Bucket {
        const bucket = STATE_BUCKETS.find((known) => known === identifier)
        if (bucket === undefined) throw { tag: 'no-such-store' } // oxlint-disable-line typescript/only-throw-error -- `err` in transpiled components
        orErr(
          () => state.open(bucket),
          (refusal) => (refusal.kind === 'not_found' ? { tag: 'no-such-store' } : errOf(refusal)),
        )
        return new Bucket(state, bucket)
      },
    },
    'wasi:keyvalue/atomics': { Cas, increment, swap },
    'wasi:keyvalue/batch': { getMany, setMany, deleteMany },
  }
}

function increment({ state, bucket }: Bucket, key: string, delta: bigint): bigint {
  return orErr(() => {
    const sum = counted(state.get(bucket, key), delta)
    state.set(bucket, key, new TextEncoder().encode(String(sum)))
    return sum
  })
}

function swap({ bucket, key, seen }: Cas, value: Uint8Array): void {
  // The value that a call has of a key changes only by its own writes.
  if (bucket.get(key) !== seen) throw { tag: 'cas-failed', val: new Cas(bucket, key) } // oxlint-disable-line typescript/only-throw-error -- `err` in transpiled components
  orErr(
    () => bucket.state.set(bucket.bucket, key, value),
    (refusal) => ({ tag: 'store-error', val: errOf(refusal) }),
  )
}

function getMany({ state, bucket }: Bucket, keys: string[]): ([string, Uint8Array] | undefined)[] {
  return orErr(() => {
    const values = state.getMany(bucket, keys)
    return keys.map((key, index) => {
      const value = values[index]
      return value === undefined ? undefined : [key, value]
    })
  })
}

function setMany({ state, bucket }: Bucket, pairs: [string, Uint8Array][]): void {
  orErr(() => {
    for (const [key, value] of pairs) state.set(bucket, key, value)
  })
}

function deleteMany({ state, bucket }: Bucket, keys: string[]): void {
  orErr(() => {
    for (const key of keys) state.delete(bucket, key)
  })
}
