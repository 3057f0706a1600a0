// task-manager.md section 3: fence, promise, lease, restarts and partitions, over thousands of schedules in virtual time.
// A schedule that fails prints its seed; SKEIN_SIMULATION_SEED=<seed> runs that one alone.
import { expect, test } from 'vitest'
import { World } from './world.ts'
import type { Outcome } from './world.ts'

const SCHEDULES = 10_000
const FIRST_SEED = 1

test('no result is recorded twice, no stale fence accepted, no task stuck, no start and no message lost for good', async () => {
  const given = process.env['SKEIN_SIMULATION_SEED']
  const seeds = given === undefined ? Array.from({ length: SCHEDULES }, (_, at) => FIRST_SEED + at) : [Number(given)]
  const seen: Outcome['seen'] = {
    requeued: 0,
    lost: 0,
    stale: 0,
    in_doubt: 0,
    restarts: 0,
    unknown: 0,
    silent: 0,
    unspooled: 0,
  }
  for (const seed of seeds) {
    const outcome = await new World(seed).run()
    expect(outcome.problems, `SKEIN_SIMULATION_SEED=${seed}`).toEqual([])
    for (const kind of Object.keys(seen) as (keyof typeof seen)[]) seen[kind] += outcome.seen[kind]
  }
  if (given === undefined) for (const [kind, count] of Object.entries(seen)) expect(count, kind).toBeGreaterThan(100)
}, 400_000)

test('the same seed gives the same schedule', async () => {
  const [first, second] = [await new World(77).run(), await new World(77).run()]
  expect(first).toEqual(second)
})
