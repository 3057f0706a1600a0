import { expect, it } from 'vitest'
import { createPullSlots } from './pull-slots.ts'

const never = new AbortController().signal

it('runs so many at once, in order, and refuses when the queue is full', async () => {
  const slots = createPullSlots(2, 2)
  const gates = Array.from({ length: 4 }, () => Promise.withResolvers<void>())
  const started: number[] = []
  const runs = gates.map((gate, index) =>
    slots.run(() => {
      started.push(index)
      return gate.promise
    }, never),
  )
  await expect(slots.run(() => Promise.resolve(), never)).rejects.toMatchObject({
    kind: 'unavailable',
    retryAfterSeconds: 1,
  })
  expect(started).toEqual([0, 1])
  gates[1]?.resolve()
  await runs[1]
  await Promise.resolve()
  expect(started).toEqual([0, 1, 2])
  for (const gate of gates) gate.resolve()
  await Promise.all(runs)
  expect(started).toEqual([0, 1, 2, 3])
})

it('passes the slot of a failed run on, and forgets who gave up waiting', async () => {
  const slots = createPullSlots(1, 10)
  const { promise, reject } = Promise.withResolvers<void>()
  const failing = slots.run(() => promise, never)
  const giveUp = new AbortController()
  const waiting = slots.run(() => Promise.resolve('never'), giveUp.signal)
  giveUp.abort(new Error('gave up'))
  await expect(waiting).rejects.toThrow('gave up')
  const next = slots.run(() => Promise.resolve('next'), never)
  reject(new Error('failed'))
  await expect(failing).rejects.toThrow('failed')
  expect(await next).toBe('next')
})
