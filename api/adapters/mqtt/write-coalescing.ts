/**
 * Schedules writes to connections. The bytes of one turn of the event loop are written at its end; for a message to very many
 * connections, the first ones are written earlier, so that they do not wait for the last.
 */

/** Up to this number of connections in a turn, all writes are at its end. */
export const WRITTEN_TOGETHER = 128

export type Writable = {
  /** The last turn in which it was written to; -1: none. */
  flushedIn: number
  /** Writes its queued bytes. */
  flush(): void
}

/** Call the result for a connection with its first bytes since the last write; `atEnd` runs its argument at the end of the turn. */
export function coalesceWrites(atEnd: (end: () => void) => void): (connection: Writable) => void {
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
    // This connection was already written in this turn: several messages go to the same connections, and the rest is written together.
    if (connection.flushedIn === turn) mayBeEarly = false
    waiting.push(connection)
    // This connection does not have its bytes yet.
    if (mayBeEarly && waiting.length > WRITTEN_TOGETHER) flush(WRITTEN_TOGETHER)
  }
}
