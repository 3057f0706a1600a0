/**
 * Who may write at the same time: batches that have nothing in common do, every other one is alone, and all of them begin in the
 * order in which they came.
 */
type Waiting = { mayShare: () => boolean; begin: (turn: Turn) => void }
export type Turn = 'shared' | 'alone'

export class Turns {
  #sharing = 0
  #isAlone = false
  readonly #waiting: Waiting[] = []

  /** Resolves when it is its turn; `mayShare` is asked then, for what was true earlier may not be any more. */
  take(mayShare: () => boolean): Promise<Turn> {
    const { promise, resolve } = Promise.withResolvers<Turn>()
    this.#waiting.push({ mayShare, begin: resolve })
    this.#admit()
    return promise
  }

  giveBack(turn: Turn): void {
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
