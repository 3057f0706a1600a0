/**
 * Stage 3 of docs/scale.md: no single point of failure. Everything is killed once under load. Nothing that was acknowledged is missing,
 * nothing is stored twice, each result is published once, and what was revoked stays revoked.
 */
import { describe, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { hasClusterPrograms } from './database-cluster.ts'
import { KILLS } from './faults.ts'
import type { SupervisedProgram } from './programs.ts'
import { startCluster } from './start.ts'

const REFUSED_DEADLINE_MS = 60_000
/** Messages that are refused one after the other. */
const REFUSALS = 20
/** As for every fault but those of the primary. */
const GOAL_SECONDS = 2

describe.runIf(hasClusterPrograms())('three database servers and two programs of each kind', () => {
  const cluster = startCluster()

  test.for(KILLS)('$name: nothing is lost', async (fault) => {
    await cluster().suffer(fault)
  })

  test('without a standby nothing is acknowledged: 503 with Retry-After until one is back', async () => {
    const { database, traffic, programs } = cluster()
    const standbys = await database.standbys()
    try {
      for (const standby of standbys) standby.freezePostgres()
      let last: unknown
      const refused = await until(
        async () => {
          const answer = await traffic.publishOnce().catch((error: unknown) => void (last = error))
          last = answer ?? last
          return answer?.status === 503 && answer.text.includes('synchronous standbys') && answer
        },
        'messages are refused',
        REFUSED_DEADLINE_MS,
      ).catch((error: unknown) => {
        throw new Error(`the last answer was ${JSON.stringify(last)}`, { cause: error })
      })
      expect(Number(refused.retryAfter)).toBeGreaterThan(0)
      const ready = await fetch(`${(programs.api[0] as SupervisedProgram).base}/ready`)
      expect(ready.status).toBe(503)
      expect(await ready.text()).toContain('"commit"')
      const before = traffic.sums.messages
      for (let attempt = 0; attempt < REFUSALS; attempt++)
        expect(await traffic.publishOnce()).toMatchObject({ status: 503 })
      expect(traffic.sums.messages).toBe(before)
    } finally {
      for (const standby of standbys) standby.thawPostgres()
    }
    const name = 'both standbys answer again after they were frozen'
    await cluster().suffer({ name, goalSeconds: GOAL_SECONDS, prepare: () => ({ cause: () => undefined }) })
  })
})
