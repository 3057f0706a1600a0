import { expect, test, vi } from 'vitest'
import { ServiceError } from '#core/errors/index.ts'
import type { DeviceSink, DropReason, ToDevice } from '../device-topics/index.ts'
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
function subscribed({
  fail = () => undefined,
  drop = () => undefined,
  commands = [command(1)],
}: {
  fail?: () => Error | undefined
  drop?: (id: string) => DropReason | undefined
  commands?: Offered[]
}) {
  const sent: ToDevice[] = []
  const failures: unknown[] = []
  const delivered: number[][] = []
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
    send(message) {
      const reason = drop(message.levels[1] ?? '')
      if (reason === undefined) sent.push(message)
      else message.onDropped?.(reason)
    },
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

const idsOf = (sent: readonly ToDevice[]) => sent.map(({ levels }) => levels[1])

test('commands for which a connection has no room are sent later, in order', async () => {
  let isFull = false
  const drop = (id: string): DropReason | undefined => {
    isFull ||= id === 'id-2'
    return isFull ? 'slow' : undefined
  }
  let dropNow: typeof drop | undefined = drop
  const device = subscribed({ drop: (id) => dropNow?.(id), commands: [command(1), command(2), command(3)] })
  await vi.waitUntil(() => isFull)
  device.sent[0]?.onAcknowledged?.()
  await new Promise((resolve) => setTimeout(resolve, 50))
  expect(idsOf(device.sent)).toEqual(['id-1'])
  dropNow = undefined
  await vi.waitUntil(() => device.sent.length > 1, { timeout: 5_000 })
  expect(idsOf(device.sent)).toEqual(['id-1', 'id-2', 'id-3'])
  expect(device.delivered).toEqual([[1]])
})

test('a command that no packet of a connection can hold does not hold up the others', async () => {
  const device = subscribed({
    drop: (id) => (id === 'id-1' ? 'too_large' : undefined),
    commands: [command(1), command(2)],
  })
  await vi.waitUntil(() => device.sent.length > 0)
  expect(idsOf(device.sent)).toEqual(['id-2'])
  device.wake()
  await new Promise((resolve) => setTimeout(resolve, 20))
  expect(idsOf(device.sent)).toEqual(['id-2'])
})
