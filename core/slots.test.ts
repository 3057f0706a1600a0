import { expect, test } from 'vitest'
import { Slots } from './slots.ts'

const WAIT_MS = 60_000
const turn = () => new Promise<void>((resolve) => void setImmediate(resolve))

test('one domain gets at most its share, and the error names the limit', async () => {
  const slots = new Slots({ what: 'exports', max: 4, share: 2 })
  const [first] = [await slots.take('a'), await slots.take('a')]
  await expect(slots.take('a')).rejects.toMatchObject({
    kind: 'rate_limited',
    message: 'one domain may have at most 2 exports at a time; try again later',
    retryAfterSeconds: 5,
  })
  await slots.take('b')
  await slots.take(null)
  await expect(slots.take('c')).rejects.toMatchObject({ kind: 'unavailable', retryAfterSeconds: 5 })
  first()
  first()
  expect(slots.taken).toBe(3)
  await slots.take('c')
})

test('a free slot goes to the domain that holds the fewest, however many of another wait', async () => {
  const slots = new Slots({ what: 'uploads', max: 2, share: 2, waitMs: WAIT_MS, maxWaiting: 10 })
  const [one, other] = [await slots.take('many'), await slots.take('many')]
  const order: string[] = []
  for (const owner of ['many', 'many', 'few']) void slots.take(owner).then(() => order.push(owner))
  await turn()
  one()
  await turn()
  expect(order).toEqual(['few'])
  other()
  await turn()
  expect(order).toEqual(['few', 'many'])
  expect(slots.taken).toBe(2)
})

test('work takes as many slots as it needs; a smaller one does not overtake it when they are free', async () => {
  const slots = new Slots({ what: 'bytes', max: 20, share: 12, waitMs: WAIT_MS, maxWaiting: 10 })
  const [mine, other] = [await slots.take('a', undefined, 10), await slots.take('b', undefined, 5)]
  const order: string[] = []
  for (const [owner, size] of [
    ['a', 3],
    ['c', 12],
    ['d', 1],
  ] as const)
    void slots.take(owner, undefined, size).then(() => order.push(`${owner} ${size}`))
  await turn()
  expect(order).toEqual([])
  expect(slots.taken).toBe(15)
  mine()
  await turn()
  expect(order).toEqual(['a 3', 'c 12'])
  expect(slots.taken).toBe(20)
  other()
  await turn()
  expect(order).toEqual(['a 3', 'c 12', 'd 1'])
  expect(slots.taken).toBe(16)
})

test('callers behind a large piece of work are served when it gives up', async () => {
  const slots = new Slots({ what: 'bytes', max: 10, share: 10, waitMs: WAIT_MS, maxWaiting: 10 })
  await slots.take('a', undefined, 5)
  const leaving = new AbortController()
  const large = slots.take('b', leaving.signal, 10)
  const small = slots.take('c')
  leaving.abort(new Error('gone'))
  await expect(large).rejects.toThrow('gone')
  await small
  expect(slots.taken).toBe(6)
})

test('waiting callers are bounded, in number and in time', async () => {
  const slots = new Slots({ what: 'uploads', max: 1, share: 1, waitMs: 20, maxWaiting: 1 })
  const release = await slots.take('a')
  const late = slots.take('b')
  await expect(slots.take('b')).rejects.toMatchObject({ kind: 'unavailable' })
  await expect(late).rejects.toMatchObject({ kind: 'unavailable' })
  await expect(slots.take('a')).rejects.toMatchObject({ kind: 'rate_limited' })
  release()
  expect(slots.taken).toBe(0)
})

test('a caller that aborts leaves the queue with its reason', async () => {
  const slots = new Slots({ what: 'pulls', max: 1, share: 1, waitMs: WAIT_MS, maxWaiting: 2 })
  const release = await slots.take('a')
  const leaving = new AbortController()
  const left = slots.run('b', () => Promise.resolve('never'), leaving.signal)
  const stays = slots.run('c', () => Promise.resolve('ran'))
  leaving.abort(new Error('gone'))
  await expect(left).rejects.toThrow('gone')
  await expect(slots.take('d', leaving.signal)).rejects.toThrow('gone')
  release()
  expect(await stays).toBe('ran')
  expect(slots.taken).toBe(0)
})

test('work that fails releases its slot', async () => {
  const slots = new Slots({ what: 'pushes', max: 1, share: 1 })
  await expect(slots.run('a', () => Promise.reject(new Error('no')))).rejects.toThrow('no')
  expect(slots.taken).toBe(0)
})

test('callers of all owners wait up to a common limit', async () => {
  const slots = new Slots({ what: 'imports', max: 1, share: 1, waitMs: WAIT_MS, maxWaiting: 2, maxWaitingInAll: 3 })
  const release = await slots.take('a')
  const waiting = ['b', 'b', 'c'].map((owner) => slots.take(owner))
  expect(slots.waiting).toBe(3)
  await expect(slots.take('d')).rejects.toMatchObject({ kind: 'unavailable' })
  release()
  ;(await waiting[0])?.()
  await Promise.all([waiting[2]?.then((end) => end()), waiting[1]?.then((end) => end())])
  expect([slots.waiting, slots.taken]).toEqual([0, 0])
})
