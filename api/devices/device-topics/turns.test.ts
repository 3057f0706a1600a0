import { expect, test } from 'vitest'
import { ServiceError } from '#core/errors/index.ts'
import { DeviceTurns } from './turns.ts'

const DEVICE = { clientKey: 1, domainKey: 7 }
const MIB = 1024 * 1024
const turn = () => new Promise<void>((resolve) => void setImmediate(resolve))

/** Work that ends when it is told to, and notes when it begins. */
function works() {
  const begun: string[] = []
  const ends = new Map<string, (error?: Error) => void>()
  return {
    begun,
    work: (name: string) => () =>
      new Promise<string>((resolve, reject) => {
        begun.push(name)
        ends.set(name, (error) => (error === undefined ? resolve(name) : reject(error)))
      }),
    end: async (name: string, error?: Error) => {
      ends.get(name)?.(error)
      await turn()
    },
  }
}

/** What a promise resolves to, or the text of its error. */
const outcome = (promise: Promise<string>) => promise.catch((error: unknown) => (error as Error).message)

test('one device is served in order, and others beside it', async () => {
  const turns = new DeviceTurns('reports')
  const { begun, work, end } = works()
  const all = ['a1', 'a2'].map((name) => outcome(turns.run(DEVICE, 1, work(name))))
  all.push(outcome(turns.run({ ...DEVICE, clientKey: 2 }, 1, work('b1'))))
  await turn()
  expect(begun).toEqual(['a1', 'b1'])
  await end('a1')
  expect(begun).toEqual(['a1', 'b1', 'a2'])
  await end('b1')
  await end('a2')
  expect(await Promise.all(all)).toEqual(['a1', 'a2', 'b1'])
  expect(turns.bytes).toBe(0)
})

test('what stands behind a temporary failure fails with it, and what comes next is written', async () => {
  const turns = new DeviceTurns('reports')
  const { begun, work, end } = works()
  const all = ['a1', 'a2', 'a3'].map((name) => outcome(turns.run(DEVICE, 1, work(name))))
  const ofOther = turns.run({ ...DEVICE, clientKey: 2 }, 1, work('b1'))
  await turn()
  await end('a1', new ServiceError('unavailable', 'a failover'))
  expect(await Promise.all(all)).toEqual(['a failover', 'a failover', 'a failover'])
  expect(begun).toEqual(['a1', 'b1'])
  await turn()
  const again = turns.run(DEVICE, 1, work('a1'))
  await turn()
  await end('a1')
  await end('b1')
  expect(await Promise.all([again, ofOther])).toEqual(['a1', 'b1'])
})

test('another error is of one report alone', async () => {
  const turns = new DeviceTurns('reports')
  const { work, end } = works()
  const all = ['a1', 'a2'].map((name) => outcome(turns.run(DEVICE, 1, work(name))))
  await turn()
  await end('a1', new ServiceError('malformed', 'no JSON'))
  await end('a2')
  expect(await Promise.all(all)).toEqual(['no JSON', 'a2'])
})

test('the bytes that wait are bounded, and what is smaller does not overtake what was refused', async () => {
  const turns = new DeviceTurns('reports')
  const { begun, work, end } = works()
  const first = turns.run(DEVICE, 5 * MIB, work('a1'))
  const refused = [outcome(turns.run(DEVICE, 4 * MIB, work('a2'))), outcome(turns.run(DEVICE, 1, work('a3')))]
  const ofOther = turns.run({ clientKey: 2, domainKey: 8 }, 4 * MIB, work('b1'))
  const text = 'too many reports of this domain are waiting: try again'
  expect(await Promise.all(refused)).toEqual([text, text])
  await end('a1')
  await end('b1')
  expect(await Promise.all([first, ofOther])).toEqual(['a1', 'b1'])
  const later = turns.run(DEVICE, 4 * MIB, work('a2'))
  await turn()
  await end('a2')
  expect(await later).toBe('a2')
  expect(begun).toEqual(['a1', 'b1', 'a2'])
})

test('the bytes of all domains are bounded', async () => {
  const turns = new DeviceTurns('reports')
  const { work } = works()
  const of = (domainKey: number) => turns.run({ clientKey: domainKey, domainKey }, 8 * MIB, work(`${domainKey}`))
  for (const domainKey of [1, 2, 3, 4]) void of(domainKey)
  await expect(of(5)).rejects.toThrow('too many reports are waiting')
})
