/**
 * Decides which batches may be written at the same time: independent batches hold the lock in shared mode, every other batch
 * in exclusive mode. It is acquired in the order of their requests.
 */
export type BatchLockMode = 'shared' | 'exclusive'

type Waiting = { mayShare: () => boolean; begin: (mode: BatchLockMode) => void }

export class BatchLock {
  #sharing = 0
  #isExclusive = false
  readonly #waiting: Waiting[] = []

  /** Resolves when the lock is acquired. `mayShare` is called then, because its answer may have changed since the request. */
  acquire(mayShare: () => boolean): Promise<BatchLockMode> {
    const { promise, resolve } = Promise.withResolvers<BatchLockMode>()
    this.#waiting.push({ mayShare, begin: resolve })
    this.#admit()
    return promise
  }

  release(mode: BatchLockMode): void {
    if (mode === 'exclusive') this.#isExclusive = false
    else this.#sharing -= 1
    this.#admit()
  }

  #admit(): void {
    for (let next = this.#waiting[0]; next !== undefined && !this.#isExclusive; next = this.#waiting[0]) {
      const mode = next.mayShare() ? 'shared' : 'exclusive'
      if (mode === 'exclusive' && this.#sharing > 0) return
      if (mode === 'exclusive') this.#isExclusive = true
      else this.#sharing += 1
      this.#waiting.shift()
      next.begin(mode)
    }
  }
}
