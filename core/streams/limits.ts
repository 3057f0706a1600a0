/** Limits the streams that one owner may have open at this process, so that no owner takes the capacity of others. */
import { ServiceError } from '../errors/index.ts'
import { countRefusal } from '../metrics/index.ts'

/** The keys for which a stream is counted; absent ones are not counted. */
export type StreamOwner = {
  client?: number | undefined
  user?: number | undefined
  domain?: string | undefined
}

type Scope = keyof StreamOwner

const SETTINGS: Record<Scope, string> = {
  client: 'SKEIN_STREAMS_PER_CLIENT',
  user: 'SKEIN_STREAMS_PER_USER',
  domain: 'SKEIN_STREAMS_PER_DOMAIN',
}
const SCOPES = Object.keys(SETTINGS) as Scope[]

/** The limit of one process. */
export const MAX_STREAMS = 20_000
const RETRY_SECONDS = 10

export class StreamLimits {
  readonly #max: Readonly<Record<Scope, number>>
  readonly #open: Record<Scope, Map<number | string, number>> = {
    client: new Map(),
    user: new Map(),
    domain: new Map(),
  }
  #size = 0

  constructor(max: Readonly<Record<Scope, number>>) {
    this.#max = max
  }

  get size(): number {
    return this.#size
  }

  /** Counts a stream. The returned function stops counting it and may be called again. Throws `rate_limited`, `unavailable`. */
  admit(owner: StreamOwner): () => void {
    if (this.#size >= MAX_STREAMS) {
      countRefusal('streams')
      throw new ServiceError('unavailable', `this process is limited to ${MAX_STREAMS} open streams: close one first`, {
        retryAfterSeconds: RETRY_SECONDS,
      })
    }
    const owned = SCOPES.flatMap((scope) => (owner[scope] === undefined ? [] : [{ scope, key: owner[scope] }]))
    for (const { scope, key } of owned) {
      if ((this.#open[scope].get(key) ?? 0) < this.#max[scope]) continue
      countRefusal('streams')
      throw new ServiceError(
        'rate_limited',
        `one ${scope} may have at most ${this.#max[scope]} open streams (${SETTINGS[scope]}); close one first`,
        { retryAfterSeconds: RETRY_SECONDS },
      )
    }
    for (const { scope, key } of owned) this.#open[scope].set(key, (this.#open[scope].get(key) ?? 0) + 1)
    this.#size += 1
    let isOpen = true
    return () => {
      if (!isOpen) return
      isOpen = false
      this.#size -= 1
      for (const { scope, key } of owned) {
        const left = (this.#open[scope].get(key) ?? 1) - 1
        if (left > 0) this.#open[scope].set(key, left)
        else this.#open[scope].delete(key)
      }
    }
  }
}
