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

test('packets to few connections leave in one write per connection at the end of the turn', () => {
  const { deliver, endTurn, writes, sum } = start(WRITTEN_TOGETHER)
  for (let message = 0; message < 10; message++) deliver()
  expect(sum()).toBe(0)
  endTurn()
  expect(writes.every((count) => count === 1)).toBe(true)
})

test('a message to many connections reaches the first before the last is processed, and all by the end of the turn', () => {
  const { deliver, endTurn, writes, sum, all } = start(WRITTEN_TOGETHER * 3)
  deliver()
  expect(writes[0]).toBe(1)
  expect(sum()).toBe(WRITTEN_TOGETHER * 2)
  endTurn()
  expect(writes.every((count) => count === 1)).toBe(true)
  expect(all.every(({ unsent }) => unsent.count === 0)).toBe(true)
})

test('the first of several messages to many connections is sent early and the others together, in every turn', () => {
  const { deliver, endTurn, writes } = start(WRITTEN_TOGETHER * 4)
  for (let turn = 1; turn <= 3; turn++) {
    for (let message = 0; message < 10; message++) deliver()
    endTurn()
    expect(Math.max(...writes)).toBe(turn * 2)
  }
})
