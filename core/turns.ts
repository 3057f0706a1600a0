/** Long work in turns: a process that serves others gives up its turn before they notice. */
import { setImmediate } from 'node:timers/promises'

/** Far below the 100 ms that nothing may take at a stretch, and far above what a turn costs. */
const TURN_MS = 10

export type Turns = {
  /** Whether this turn has been long enough; asked between pieces of work that take microseconds. */
  readonly isOver: boolean
  /** Says that a turn begins, where the event loop has given it. */
  begin(): void
  /** Resolves when others have had theirs. */
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

/** Items between two looks at the clock. */
const ITEMS_PER_LOOK = 32

/** Does the work for each item in order, in turns. */
export async function inTurns<Item>(items: Iterable<Item>, work: (item: Item, index: number) => void): Promise<void> {
  const turns = createTurns()
  let index = 0
  for (const item of items) {
    if (index % ITEMS_PER_LOOK === ITEMS_PER_LOOK - 1 && turns.isOver) await turns.next()
    work(item, index)
    index += 1
  }
}
