import { expect, test } from 'vitest'
import type { CommandFate } from '#queues/index.ts'
import { CommandStarts } from './starts.ts'

const STARTED: CommandFate = { to: 'again', afterSeconds: 2, isStarted: true }

/** Starts that end when they are told to. */
function startsOf() {
  const settled: [number, CommandFate][] = []
  const released: number[] = []
  const begun: { taskKey: number; end: () => void }[] = []
  const starts = new CommandStarts({
    settle: (commandKey, fate) => Promise.resolve(void settled.push([commandKey, fate])),
    release: (commandKeys) => void released.push(...commandKeys),
  })
  let commandKey = 0
  const run = (taskKey: number, domainKey = 1) => {
    commandKey += 1
    return starts.run({ commandKey, domainKey, taskKey }, async () => {
      await new Promise<void>((end) => begun.push({ taskKey, end }))
      return STARTED
    })
  }
  return { starts, settled, released, begun, run }
}
const countOf = <T>(count: number, make: (index: number) => T) =>
  Array.from({ length: count }, (_, index) => make(index))

test(
  'of starts of one task that take long, a bounded number is under way, and the others wait for them',
  { timeout: 60_000 },
  async () => {
    const { starts, settled, released, begun, run } = startsOf()
    const first = await Promise.all(countOf(50, () => run(7)))
    expect(begun).toHaveLength(16)
    expect(first.every((fate) => fate.to === 'again' && fate.isStarted !== true)).toBe(true)
    // It is known by now that they take long.
    expect(await Promise.all(countOf(2_000, () => run(7)))).toEqual(
      countOf(2_000, () => ({ to: 'again', afterSeconds: 30 })),
    )
    expect(begun).toHaveLength(16)
    // Another task of the domain is started meanwhile.
    const other = run(8)
    await expect.poll(() => begun.map(({ taskKey }) => taskKey), { timeout: 30_000 }).toContain(8)
    expect([settled, released]).toEqual([[], []])
    for (const { end } of begun) end()
    await other
    await starts.ended()
    const ofTask = settled.filter(([commandKey]) => commandKey <= 50)
    expect(ofTask).toHaveLength(16)
    expect(new Set(ofTask.map(([, fate]) => fate))).toEqual(new Set([STARTED]))
    expect(released).toHaveLength(1_000)
    expect(new Set(released).size).toBe(1_000)
    // It is started again.
    const next = run(7)
    await expect.poll(() => begun.length, { timeout: 30_000 }).toBe(18)
    begun.at(-1)?.end()
    await next
    await starts.ended()
  },
)

test(
  'a start that takes long and fails unexpectedly ends nothing, and holds its task no longer',
  { timeout: 60_000 },
  async () => {
    const { starts, settled, released } = startsOf()
    const failing = Promise.withResolvers<CommandFate>()
    const command = { commandKey: 1, domainKey: 1, taskKey: 7 }
    expect(await starts.run(command, () => failing.promise)).toEqual({ to: 'again', afterSeconds: 30 })
    expect(await starts.run({ ...command, commandKey: 2 }, () => failing.promise)).toEqual({
      to: 'again',
      afterSeconds: 30,
    })
    failing.reject(new Error('unexpected'))
    await starts.ended()
    expect([settled, released]).toEqual([[], [2]])
    expect(await starts.run(command, () => Promise.resolve(STARTED))).toEqual(STARTED)
    await expect(starts.run(command, () => Promise.reject(new Error('at once')))).rejects.toThrow('at once')
  },
)

test('one domain has a bounded number of starts, and others have theirs', { timeout: 60_000 }, async () => {
  const { starts, begun, run } = startsOf()
  await Promise.all(countOf(100, (index) => run(index)))
  expect(begun).toHaveLength(64)
  const other = run(1_000, 2)
  await expect.poll(() => begun.length, { timeout: 30_000 }).toBe(65)
  for (const { end } of begun) end()
  await other
  await starts.ended()
})
