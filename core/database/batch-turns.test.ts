/** Which batches are under way at the same time (docs/performance.md). */
import { expect, test } from 'vitest'
import type { BatchTurn } from './batch-turns.ts'
import { BatchTurns } from './batch-turns.ts'

/** Takes a turn and notes when it came. */
function taking(turns: BatchTurns, begun: string[]) {
  return (name: string, mayShare: () => boolean): Promise<BatchTurn> =>
    turns.take(mayShare).then((turn) => {
      begun.push(`${name} ${turn}`)
      return turn
    })
}
const yes = () => true
const no = () => false
const settle = () => new Promise(setImmediate)

test('what may share begins beside others that may', async () => {
  const begun: string[] = []
  const take = taking(new BatchTurns(), begun)
  await Promise.all([take('a', yes), take('b', yes)])
  expect(begun).toEqual(['a shared', 'b shared'])
})

test('what is alone waits for all before it, and all after it wait for it, in the order in which they came', async () => {
  const begun: string[] = []
  const turns = new BatchTurns()
  const take = taking(turns, begun)
  const before = [take('a', yes), take('b', yes)]
  void take('c', no)
  void take('d', yes)
  await settle()
  expect(begun).toEqual(['a shared', 'b shared'])
  turns.giveBack((await before[0]) as BatchTurn)
  await settle()
  expect(begun).toHaveLength(2)
  turns.giveBack((await before[1]) as BatchTurn)
  await settle()
  expect(begun.slice(2)).toEqual(['c alone'])
  turns.giveBack('alone')
  await settle()
  expect(begun.slice(3)).toEqual(['d shared'])
})

test('whether it may share is asked when its turn has come, not when it was asked for', async () => {
  const begun: string[] = []
  const turns = new BatchTurns()
  const take = taking(turns, begun)
  let isPlain = true
  await take('a', no)
  void take('b', () => isPlain)
  isPlain = false
  turns.giveBack('alone')
  await settle()
  expect(begun).toEqual(['a alone', 'b alone'])
})
