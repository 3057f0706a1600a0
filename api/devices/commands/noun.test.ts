import { expect, test, vi } from 'vitest'
import { ServiceError } from '#core/errors/index.ts'
import type { DeviceSink, ToDevice } from '../device-topics/index.ts'
import type { CommandDelivery } from './delivery.ts'
import { createCommandNoun } from './noun.ts'
import type { Offered } from './repository.ts'

const command = (key: number): Offered => ({
  key,
  id: `id-${key}`,
  name: 'reboot',
  payload: undefined,
  hasPayload: false,
  createdAt: '2026-11-30T00:00:00Z',
  expiresAt: '2026-12-01T00:00:00Z',
  status: 'queued',
})

/** A connection of a device that subscribes to its commands, and the database behind it. */
function subscribed({ fail }: { fail: () => Error | undefined }) {
  const sent: ToDevice[] = []
  const failures: unknown[] = []
  const delivered: number[][] = []
  const commands = [command(1)]
  const wakes: (() => void)[] = []
  const answer = async <T>(value: () => T): Promise<T> => {
    const error = fail()
    if (error !== undefined) throw error
    return await Promise.resolve(value())
  }
  const delivery: Pick<CommandDelivery, 'open' | 'newest' | 'delivered' | 'listen'> = {
    open: (_device, after) => answer(() => commands.filter(({ key }) => key > after)),
    newest: () => answer(() => commands.at(-1)?.key ?? 0),
    delivered: (_device, keys) => answer(() => (keys.length === 0 ? undefined : void delivered.push([...keys]))),
    listen: (_key, listener) => {
      wakes.push(listener)
      return () => undefined
    },
  }
  const sink: DeviceSink = {
    device: { clientKey: 1 } as never,
    topic: { domain: 'd', noun: 'commands', levels: ['requests', '+', '+'] },
    send: (message) => void sent.push(message),
    failed: (error) => void failures.push(error),
  }
  const subscription = createCommandNoun(delivery as never).subscribe(sink)
  return { sent, failures, delivered, commands, subscription, wake: () => wakes.forEach((listener) => listener()) }
}

const unavailable = () => new ServiceError('unavailable', 'the database is away')

test('a connection outlives a database that is away, and nothing is lost', async () => {
  let error: Error | undefined = unavailable()
  const device = subscribed({ fail: () => error })
  await new Promise((resolve) => setTimeout(resolve, 50))
  error = undefined
  await vi.waitUntil(() => device.sent.length === 1, { timeout: 5_000 })
  error = unavailable()
  device.sent[0]?.onAcknowledged?.()
  await new Promise((resolve) => setTimeout(resolve, 50))
  expect(device.delivered).toEqual([])
  device.commands.push(command(2))
  device.wake()
  error = undefined
  await vi.waitUntil(() => device.sent.length === 2, { timeout: 5_000 })
  expect(device.delivered).toEqual([[1]])
  expect(device.failures).toEqual([])
  device.subscription.close()
})

test('what was acknowledged before the end is written with it', async () => {
  let error: Error | undefined
  const device = subscribed({ fail: () => error })
  await vi.waitUntil(() => device.sent.length === 1)
  error = unavailable()
  device.sent[0]?.onAcknowledged?.()
  await new Promise((resolve) => setTimeout(resolve, 50))
  error = undefined
  device.subscription.close()
  await vi.waitUntil(() => device.delivered.length === 1)
})

test('a fault closes the connection', async () => {
  const fault = new Error('a fault')
  const device = subscribed({ fail: () => fault })
  await vi.waitUntil(() => device.failures.length > 0)
  expect(device.failures).toEqual([fault])
})
