import { expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { CommandDelivery } from './delivery.ts'

/** Counts the transactions that run at a time. */
function counted() {
  let running = 0
  const counts = { most: 0, all: 0 }
  const change = async () => {
    running++
    counts.all++
    counts.most = Math.max(counts.most, running)
    await new Promise((resolve) => setTimeout(resolve, 1))
    running--
    return { hasEnded: false, isLate: false }
  }
  const delivery = new CommandDelivery({
    open: { newest: async () => await Promise.resolve(1) },
    journal: { change },
    signal: new AbortController().signal,
  } as never)
  return { delivery, counts }
}

test('a device holds one connection to the database, however many answers and requests it sends', async () => {
  const { delivery, counts } = counted()
  const device = { clientKey: 1, domainKey: 1 }
  const id = newId()
  const { signal } = new AbortController()
  await Promise.all(
    Array.from({ length: 30 }, async (_, index) => {
      await delivery.answer(device, id, { bytes: 10, result: () => ({ status: 'succeeded' }) })
      await delivery.take(device, undefined, signal)
      await delivery.delivered(device, [index])
    }),
  )
  expect(counts).toEqual({ most: 1, all: 90 })
})

test('the devices of a domain hold few of them', async () => {
  const { delivery, counts } = counted()
  await Promise.all(
    Array.from({ length: 50 }, async (_, clientKey) => await delivery.delivered({ clientKey, domainKey: 1 }, [1])),
  )
  expect(counts.all).toBe(50)
  expect(counts.most).toBeLessThan(6)
})
