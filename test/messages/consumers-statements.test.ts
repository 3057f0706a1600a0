// docs/decisions/0112: what a pull and an acknowledgement cost
import { AsyncLocalStorage } from 'node:async_hooks'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { useWorld } from '../harness/world.ts'
import { newConsumer, send } from './consumers-support.ts'
import type { Taken } from './consumers-support.ts'
import { startPlant } from './support.ts'

const plant = useWorld(() => startPlant({ consumerTimes: { checkSeconds: 60, intervalMs: 60_000 } }))

/** The statements of a call, and of nothing that runs beside it. */
const counting = new AsyncLocalStorage<string[]>()
/** The numbers of the batches that a pull loaded messages of, of each time. */
const looking = new AsyncLocalStorage<number[][]>()
const LOAD = /FROM records m\b.*JOIN series/s
const { query } = pg.Client.prototype

beforeAll(() => {
  pg.Client.prototype.query = function counted(this: pg.Client, ...args: unknown[]) {
    const [statement, values] = args as [string | { text?: string; values?: unknown[] }, unknown[] | undefined]
    const text = typeof statement === 'string' ? statement : (statement.text ?? '')
    counting.getStore()?.push(text)
    const given = typeof statement === 'string' ? values : (statement.values ?? values)
    if (LOAD.test(text)) looking.getStore()?.push(given?.find((value) => Array.isArray(value)) as number[])
    return (query as (...all: unknown[]) => unknown).apply(this, args) as never
  } as typeof query
})
afterAll(() => {
  pg.Client.prototype.query = query
})

/** The median of several calls: a new connection of the pool has statements of its own. */
async function statementsOf(work: () => Promise<unknown>): Promise<string[]> {
  const samples: string[][] = []
  for (let sample = 0; sample < SAMPLES; sample++) {
    const statements: string[] = []
    await counting.run(statements, work)
    samples.push(statements)
  }
  return samples.toSorted((one, other) => one.length - other.length)[1] ?? []
}

const headsOf = (statements: readonly string[]) =>
  statements.map((text) => text.trim().slice(0, 120).replaceAll(/\s+/g, ' ')).join('\n')

function expectAtMost(budget: number, statements: readonly string[]): void {
  expect(statements.length, headsOf(statements)).toBeLessThanOrEqual(budget)
  expect(statements.length).toBeGreaterThan(0)
}

const SAMPLES = 3
const MANY = 12
const WAITING = 40
/** Finding the consumer, BEGIN, the row with its lock, what is in doubt, the log, envelopes, records, payloads, the progress, COMMIT. */
const OF_A_PULL = 10
/** Finding the consumer, BEGIN, the row, what is in doubt, the end of the log, COMMIT. */
const OF_AN_EMPTY_PULL = 6
/** Finding the consumer, and the acknowledgement. */
const OF_AN_ACK = 2

test('a pull and an acknowledgement have the same number of statements for one message and for many', async () => {
  const device = await plant.newDevice()
  const channel = await plant.newChannel()
  await plant.connect(device, channel)
  const consumer = await newConsumer(plant, [channel], { from: 'latest', order: 'none' })
  const publish = async (count: number) => {
    for (let value = 0; value < count; value++) await send(plant, device, channel, { value })
  }
  for (const size of [1, MANY]) {
    await publish(size * SAMPLES)
    const taken: Taken[][] = []
    expectAtMost(OF_A_PULL, await statementsOf(async () => taken.push(await consumer.pull(size))))
    expect(taken.map((page) => page.length)).toEqual(Array(SAMPLES).fill(size))
    expectAtMost(OF_AN_ACK, await statementsOf(() => consumer.ack(...(taken.pop() ?? []))))
  }
  expect(await consumer.pull()).toEqual([])
  expectAtMost(OF_AN_EMPTY_PULL, await statementsOf(() => consumer.pull()))
})

test('a pull loads as many batches as it needs, however many wait', async () => {
  const device = await plant.newDevice()
  const channel = await plant.newChannel()
  await plant.connect(device, channel)
  const consumer = await newConsumer(plant, [channel], { from: 'latest', order: 'none' })
  // One after another: a batch each.
  for (let value = 0; value < WAITING; value++) await send(plant, device, channel, { value })
  const looks: number[][] = []
  const taken = await looking.run(looks, () => consumer.pull(2))
  expect(taken.map(({ payload }) => payload)).toEqual([{ value: 0 }, { value: 1 }])
  // The two messages, and the next one, since which the consumer is behind.
  expect(looks.map(({ length }) => length)).toEqual([3])
})
