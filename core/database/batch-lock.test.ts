/** Which batches run at the same time (docs/performance.md). */
import { expect, test } from 'vitest'
import type { BatchLockMode } from './batch-lock.ts'
import { BatchLock } from './batch-lock.ts'

/** Acquires the lock and records when. */
function taking(lock: BatchLock, begun: string[]) {
  return (name: string, mayShare: () => boolean): Promise<BatchLockMode> =>
    lock.acquire(mayShare).then((mode) => {
      begun.push(`${name} ${mode}`)
      return mode
    })
}
const yes = () => true
const no = () => false
const settle = () => new Promise(setImmediate)

test('batches that may share begin together', async () => {
  const begun: string[] = []
  const take = taking(new BatchLock(), begun)
  await Promise.all([take('a', yes), take('b', yes)])
  expect(begun).toEqual(['a shared', 'b shared'])
})

test('an exclusive batch waits for all earlier batches and delays all later ones, in order', async () => {
  const begun: string[] = []
  const lock = new BatchLock()
  const take = taking(lock, begun)
  const before = [take('a', yes), take('b', yes)]
  void take('c', no)
  void take('d', yes)
  await settle()
  expect(begun).toEqual(['a shared', 'b shared'])
  lock.release((await before[0]) as BatchLockMode)
  await settle()
  expect(begun).toHaveLength(2)
  lock.release((await before[1]) as BatchLockMode)
  await settle()
  expect(begun.slice(2)).toEqual(['c exclusive'])
  lock.release('exclusive')
  await settle()
  expect(begun.slice(3)).toEqual(['d shared'])
})

test('mayShare is called when the lock is acquired, not when it is requested', async () => {
  const begun: string[] = []
  const lock = new BatchLock()
  const take = taking(lock, begun)
  let isPlain = true
  await take('a', no)
  void take('b', () => isPlain)
  isPlain = false
  lock.release('exclusive')
  await settle()
  expect(begun).toEqual(['a exclusive', 'b exclusive'])
})
