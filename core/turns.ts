/** Splits long work into turns of the event loop, so that the process stays responsive. */
import { setImmediate } from 'node:timers/promises'

/**
 * Well above the cost of a turn, which is 20 µs. A request of another caller takes four to six rounds of the event loop, and waits for a
 * turn of the long work in each.
 */
const TURN_MS = 2

export type Turns = {
  /** Whether the current turn is used up; check it between pieces of work that take microseconds. */
  readonly isOver: boolean
  /** Call it when a turn of the event loop begins. */
  begin(): void
  /** Resolves in a later turn of the event loop. */
  next(): Promise<void>
}

export function createTurns(): Turns {
  let beganMs = performance.now()
  return {
    get isOver() {
      return performance.now() - beganMs > TURN_MS
    },
    begin() {
      beganMs = performance.now()
    },
    async next() {
      await setImmediate()
      beganMs = performance.now()
    },
  }
}

/** The number of items between two checks of the clock. */
const ITEMS_PER_LOOK = 32

/** Does the work for each item in order, in turns of the event loop. */
export async function inTurns<Item>(items: Iterable<Item>, work: (item: Item, index: number) => void): Promise<void> {
  const turns = createTurns()
  let index = 0
  for (const item of items) {
    if (index % ITEMS_PER_LOOK === ITEMS_PER_LOOK - 1 && turns.isOver) await turns.next()
    work(item, index)
    index += 1
  }
}
