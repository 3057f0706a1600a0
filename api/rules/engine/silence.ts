/**
 * Which clients of a rule are silent. All of them have the same time, so one map has them in the order in which they were last heard: the first
 * one is due first, and nothing looks at the others. Times are those of the caller, in milliseconds, and never go back.
 *
 * When more than a share of the clients fall silent within a minute, it is an outage, such as that of a network: one finding for all of them. A
 * client is found silent at once, unless so many others would follow within the minute that it could be an outage: then it waits for its end.
 */

export type SilenceTimes = {
  afterMs: number
  /** More than this part of the clients are an outage; with 1, nothing is. */
  share: number
}

export type Silence =
  /** `sinceMs`: when it was last heard, or when it began to be watched. */
  | { kind: 'client'; id: string; sinceMs: number; atMs: number }
  | { kind: 'outage'; silent: number; total: number; sinceMs: number; atMs: number }

/** What a message of a client ends. `outage`: so many were heard again that there is none any more. */
export type Heard = 'nothing' | 'client' | 'outage'

/** Clients that fall silent within this time can be an outage. */
export const OUTAGE_WITHIN_MS = 60_000
/** With fewer clients than this, each is found by itself. */
export const MIN_OUTAGE_CLIENTS = 5

export class SilenceTimers {
  readonly #afterMs: number
  readonly #share: number
  /** When each client was last heard, the longest ago first. */
  readonly #waiting = new Map<string, number>()
  /** Found by themselves. */
  readonly #silent = new Set<string>()
  /** Found silent by the outage, or during it. */
  readonly #covered = new Set<string>()
  #isOutage = false
  /** All clients are known that were watched before. */
  #isComplete = true
  #suspectsOutage = false

  constructor({ afterMs, share }: SilenceTimes) {
    this.#afterMs = afterMs
    this.#share = share
  }

  get total(): number {
    return this.#waiting.size + this.#silent.size + this.#covered.size
  }

  get isOutage(): boolean {
    return this.#isOutage
  }

  /** The last judgement was not sure, and would have found an outage. */
  get suspectsOutage(): boolean {
    return this.#suspectsOutage
  }

  isWatched(id: string): boolean {
    return this.#waiting.has(id) || this.#silent.has(id) || this.#covered.has(id)
  }

  /** The clients that the outage is about. */
  get covered(): readonly string[] {
    return [...this.#covered]
  }

  /** Whether the client was found silent by itself. */
  isSilent(id: string): boolean {
    return this.#silent.has(id)
  }

  /** The clients that are watched. */
  *ids(): Iterable<string> {
    yield* this.#waiting.keys()
    yield* this.#silent
    yield* this.#covered
  }

  /**
   * Takes over what is stored of those that were found before: they are silent until they are heard, and so are all that are watched `isEarlier` if
   * there was an outage. What was found and is not stored any more begins again.
   */
  restore({ silent, isOutage }: { silent: ReadonlySet<string>; isOutage: boolean }, nowMs: number): void {
    if (this.total === 0) this.#isComplete = false
    for (const id of this.#silent)
      if (!silent.has(id)) {
        this.#silent.delete(id)
        this.#waiting.set(id, nowMs)
      }
    for (const id of silent) {
      this.#end(id)
      this.#silent.add(id)
    }
    if (this.#isOutage && !isOutage) this.endOutage(nowMs)
    this.#isOutage = isOutage
  }

  /** Every client is watched that was before. True: so few are silent that there is no outage any more. */
  complete(): boolean {
    this.#isComplete = true
    return this.#endsOutage()
  }

  /** Begins to watch a client. `isEarlier`: before an outage that was restored began. */
  watch(id: string, nowMs: number, isEarlier = false): void {
    if (this.isWatched(id)) return
    if (this.#isOutage && isEarlier) this.#covered.add(id)
    else this.#waiting.set(id, nowMs)
  }

  /** Watches the client no longer. */
  forget(id: string): Heard {
    const was = this.#end(id)
    return was === 'outage' && this.#endsOutage() ? 'outage' : was === 'client' ? 'client' : 'nothing'
  }

  /** What was found of the client is over, as if it had been heard. */
  heard(id: string, nowMs: number): Heard {
    const was = this.#end(id)
    this.#waiting.set(id, nowMs)
    if (was !== 'outage') return was
    return this.#endsOutage() ? 'outage' : 'nothing'
  }

  /** Ends an outage: those that are still silent begin again. */
  endOutage(nowMs: number): void {
    this.#isOutage = false
    for (const id of this.#covered) this.#waiting.set(id, nowMs)
    this.#covered.clear()
  }

  /** When a client is next due; undefined: none is watched. */
  dueMs(): number | undefined {
    const first = this.#waiting.values().next()
    return first.done === true ? undefined : first.value + this.#afterMs
  }

  /**
   * The clients that fell silent up to now, at most `limit` findings. Not sure: some of them may not be watched any more, so an outage is only
   * suspected, and is found when who is gone was forgotten.
   */
  judge(nowMs: number, limit: number, isSure = true): Silence[] {
    const found: Silence[] = []
    this.#suspectsOutage = false
    if (!this.#isComplete) return found
    const ahead = this.#waiting.values()
    let next = ahead.next()
    let counted = 0
    for (const [id, sinceMs] of this.#waiting) {
      const atMs = sinceMs + this.#afterMs
      if (atMs > nowMs || found.length >= limit) break
      if (this.#isOutage) {
        this.#cover(id)
        continue
      }
      const endMs = atMs + OUTAGE_WITHIN_MS
      // The clients that fall silent within the minute if they are not heard; of these, the ones that did so.
      while (next.done !== true && next.value + this.#afterMs <= endMs) {
        counted++
        next = ahead.next()
      }
      if (this.#isMost(counted)) {
        const fallen = this.#fallenBy(Math.min(nowMs, endMs))
        if (fallen.isOutageAtMs !== undefined && !isSure) {
          this.#suspectsOutage = true
          break
        }
        if (fallen.isOutageAtMs !== undefined) {
          this.#isOutage = true
          found.push({
            kind: 'outage',
            silent: fallen.count,
            total: this.total,
            sinceMs,
            atMs: fallen.isOutageAtMs,
          })
          this.#cover(id)
          continue
        }
        // It is not known yet what the others do.
        if (endMs > nowMs) break
      }
      counted--
      this.#waiting.delete(id)
      this.#silent.add(id)
      found.push({ kind: 'client', id, sinceMs, atMs })
    }
    return found
  }

  #isMost(count: number): boolean {
    return count >= MIN_OUTAGE_CLIENTS && count > this.#share * this.total
  }

  /** How many are due up to now, and when they became an outage. */
  #fallenBy(nowMs: number): { count: number; isOutageAtMs: number | undefined } {
    let count = 0
    let isOutageAtMs: number | undefined
    for (const sinceMs of this.#waiting.values()) {
      const dueMs = sinceMs + this.#afterMs
      if (dueMs > nowMs) break
      count++
      if (isOutageAtMs === undefined && this.#isMost(count)) isOutageAtMs = dueMs
    }
    return { count, isOutageAtMs }
  }

  #cover(id: string): void {
    this.#waiting.delete(id)
    this.#covered.add(id)
  }

  #end(id: string): Heard {
    this.#waiting.delete(id)
    if (this.#silent.delete(id)) return 'client'
    return this.#covered.delete(id) ? 'outage' : 'nothing'
  }

  #endsOutage(): boolean {
    return this.#isOutage && this.#isComplete && this.#covered.size <= this.#share * this.total
  }
}
