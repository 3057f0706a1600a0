import { expect, test } from 'vitest'
import { WRITTEN_TOGETHER, coalesceWrites } from './write-coalescing.ts'

function start(connections: number) {
  const writes: number[] = Array.from({ length: connections }, () => 0)
  let ends: (() => void)[] = []
  const send = coalesceWrites((end) => void ends.push(end))
  const all = writes.map((_, index) => {
    const unsent = { count: 0 }
    return {
      flushedIn: -1,
      unsent,
      flush() {
        if (unsent.count === 0) return
        unsent.count = 0
        writes[index] = (writes[index] ?? 0) + 1
      },
    }
  })
  const deliver = () => {
    for (const connection of all) {
      if (connection.unsent.count === 0) send(connection)
      connection.unsent.count++
    }
  }
  const endTurn = () => {
    const ending = ends
    ends = []
    for (const end of ending) end()
  }
  const sum = () => writes.reduce((total, one) => total + one, 0)
  return { all, writes, deliver, endTurn, sum }
}

