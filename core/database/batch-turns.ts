/**
 * Who may write at the same time: batches that have nothing in common share a turn, every other batch has one alone, and all of
 * them begin in the order in which they asked.
 */
export type BatchTurn = 'shared' | 'alone'

type Waiting = { mayShare: () => boolean; begin: (turn: BatchTurn) => void }

export class BatchTurns {
  #sharing = 0
  #isAlone = false
  readonly #waiting: Waiting[] = []

  /** Resolves when the turn begins; `mayShare` is asked then, because what was true earlier may have changed. */
  take(mayShare: () => boolean): Promise<BatchTurn> {
    const { promise, resolve } = Promise.withResolvers<BatchTurn>()
    this.#waiting.push({ mayShare, begin: resolve })
    this.#admit()
    return promise
  }

  giveBack(turn: BatchTurn): void {
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
