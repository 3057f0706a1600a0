import { expect, test } from 'vitest'
import { pacedWork } from './paced.ts'

function counted() {
  let nowMs = 0
  const calls: PromiseWithResolvers<number>[] = []
  const read = pacedWork(
    () => {
      calls.push(Promise.withResolvers())
      return (calls.at(-1) as PromiseWithResolvers<number>).promise
    },
    1000,
    () => nowMs,
  )
  return { read, calls, pass: (ms: number) => (nowMs += ms) }
}

test('all callers within the interval get the result of one call', async () => {
  const { read, calls, pass } = counted()
  const first = [read(), read()]
  pass(500)
  calls[0]?.resolve(1)
  expect(await Promise.all([...first, read()])).toEqual([1, 1, 1])
  pass(499)
  expect(await read()).toBe(1)
  expect(calls).toHaveLength(1)
  pass(1)
  const next = read()
  calls[1]?.resolve(2)
  expect(await next).toBe(2)
  expect(calls).toHaveLength(2)
})

test('a call that takes longer than the interval is not joined by a second one', async () => {
  const { read, calls, pass } = counted()
  const first = read()
  pass(5000)
  const second = read()
  expect(calls).toHaveLength(1)
  calls[0]?.resolve(1)
  expect(await Promise.all([first, second])).toEqual([1, 1])
  void read()
  expect(calls).toHaveLength(2)
})

test('a failure reaches those that waited for it, and is not kept', async () => {
  const { read, calls } = counted()
  const failed = [read(), read()]
  calls[0]?.reject(new Error('broken'))
  for (const one of failed) await expect(one).rejects.toThrow('broken')
  const next = read()
  calls[1]?.resolve(2)
  expect(await next).toBe(2)
})
