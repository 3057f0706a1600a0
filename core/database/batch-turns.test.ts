/** Which batches run at the same time (docs/performance.md). */
import { expect, test } from 'vitest'
import type { BatchTurn } from './batch-turns.ts'
import { BatchTurns } from './batch-turns.ts'

/** Takes a turn and records when it begins. */
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

test('batches that may share begin together', async () => {
  const begun: string[] = []
  const take = taking(new BatchTurns(), begun)
  await Promise.all([take('a', yes), take('b', yes)])
  expect(begun).toEqual(['a shared', 'b shared'])
})

test('an exclusive batch waits for all earlier batches and delays all later ones, in order', async () => {
  const begun: string[] = []
  const turns = new BatchTurns()
  const take = taking(turns, begun)
  const before = [take('a', yes), take('b', yes)]
  void take('c', no)
  void take('d', yes)
  await settle()
  expect(begun).toEqual(['a shared', 'b shared'])
  turns.release((await before[0]) as BatchTurn)
  await settle()
  expect(begun).toHaveLength(2)
  turns.release((await before[1]) as BatchTurn)
  await settle()
  expect(begun.slice(2)).toEqual(['c alone'])
  turns.release('alone')
  await settle()
  expect(begun.slice(3)).toEqual(['d shared'])
})

test('mayShare is called when the turn begins, not when it is requested', async () => {
  const begun: string[] = []
  const turns = new BatchTurns()
  const take = taking(turns, begun)
  let isPlain = true
  await take('a', no)
  void take('b', () => isPlain)
  isPlain = false
  turns.release('alone')
  await settle()
  expect(begun).toEqual(['a alone', 'b alone'])
})
