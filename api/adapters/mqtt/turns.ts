/**
 * When connections are written to. What one is sent in a turn of the event loop leaves in one write at its end; where a message
 * goes to very many, the first of them do not wait until the last has been looked at.
 */

/** With fewer in a turn all wait for its end. */
export const WRITTEN_TOGETHER = 128

export type Writable = {
  /** The last turn in which it was written to; -1: none. */
  flushedIn: number
  /** Writes what was sent to it. */
  flush(): void
}

/** Takes those that are sent something first since they were written to; `atEnd` runs its argument when the turn is over. */
export function createTurns(atEnd: (end: () => void) => void): (connection: Writable) => void {
  let waiting: Writable[] = []
  let turn = 0
  let isUnderWay = false
  let mayBeEarly = true

  /** The first of them. */
  function flush(count: number): void {
    const flushing = waiting
    waiting = flushing.slice(count)
    for (let index = 0; index < count; index++) {
      const connection = flushing[index] as Writable
      connection.flushedIn = turn
      connection.flush()
    }
  }

  function end(): void {
    isUnderWay = false
    flush(waiting.length)
    mayBeEarly = true
    turn++
  }

  return (connection) => {
    if (!isUnderWay) {
      isUnderWay = true
      atEnd(end)
    }
    // It was written to in this turn already, so several messages go to the same ones: the rest of them leaves together.
    if (connection.flushedIn === turn) mayBeEarly = false
    waiting.push(connection)
    // This one has not been given its bytes yet.
    if (mayBeEarly && waiting.length > WRITTEN_TOGETHER) flush(WRITTEN_TOGETHER)
  }
}
