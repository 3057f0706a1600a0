/**
 * Decides which batches may be written at the same time: independent batches share a turn, every other batch has an exclusive
 * one. All of them begin in the order of their requests.
 */
export type BatchTurn = 'shared' | 'alone'

type Waiting = { mayShare: () => boolean; begin: (turn: BatchTurn) => void }

export class BatchTurns {
  #sharing = 0
  #isAlone = false
  readonly #waiting: Waiting[] = []

  /** Resolves when the turn begins. `mayShare` is called then, because its answer may have changed since the request. */
  take(mayShare: () => boolean): Promise<BatchTurn> {
    const { promise, resolve } = Promise.withResolvers<BatchTurn>()
    this.#waiting.push({ mayShare, begin: resolve })
    this.#admit()
    return promise
  }

  release(turn: BatchTurn): void {
    if (turn === 'alone') this.#isAlone = false
    else this.#sharing -= 1
    this.#admit()
  }

  #admit(): void {
    for (let next = this.#waiting[0]; next !== undefined && !this.#isAlone; next = this.#waiting[0]) {
      const turn = next.mayShare() ? 'shared' : 'alone'
      if (turn === 'alone' && this.#sharing > 0) return
      if (turn === 'alone') this.#isAlone = true
      else this.#sharing += 1
      this.#waiting.shift()
      next.begin(turn)
    }
  }
}
