/**
 * Stage 3 of docs/scale.md: no single point of failure. Everything is killed once under load. Nothing that was acknowledged is missing,
 * nothing is stored twice, each result is published once, and what was revoked stays revoked.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { Cluster } from './cluster.ts'
import { hasClusterPrograms } from './database-cluster.ts'
import type { SupervisedProgram } from './programs.ts'

const REFUSED_DEADLINE_MS = 60_000
/** Messages that are refused one after the other. */
const REFUSALS = 20
const START_DEADLINE_MS = 240_000

describe.runIf(hasClusterPrograms())('three database servers and two programs of each kind', () => {
  let cluster: Cluster
  beforeAll(async () => {
    cluster = await Cluster.start()
  }, START_DEADLINE_MS)
  afterAll(async () => {
    // Not when the start failed.
    const started = cluster as Cluster | undefined
    if (started !== undefined) process.stdout.write(`\nTime without service\n\n${started.table}`)
    await started?.[Symbol.asyncDispose]()
  }, START_DEADLINE_MS)

  const nothing = () => undefined

  test('kill -9 of the PostgreSQL of the primary loses nothing', async () => {
    const leader = await cluster.database.leader()
    await cluster.suffer('PostgreSQL of the primary killed', () => leader.killPostgres(), nothing)
    expect((await cluster.database.leader()).name).not.toBe(leader.name)
  })

  test('the loss of the machine of the primary loses nothing', async () => {
    const leader = await cluster.database.leader()
    const lose = () => leader.killPatroniAndPostgres()
    await cluster.suffer('machine of the primary lost', lose, () => leader.patroni.begin())
    expect((await cluster.database.leader()).name).not.toBe(leader.name)
  })

  test('kill -9 of Redis loses nothing', async () => {
    const { redis } = cluster
    await cluster.suffer(
      'Redis killed',
      () => redis.kill(),
      () => redis.begin(),
    )
  })

  test.each(['api', 'managers', 'workers'] as const)('kill -9 of one of the %s loses nothing', async (kind) => {
    const [program] = cluster.programs[kind] as [SupervisedProgram]
    await cluster.suffer(`${program.name} killed`, () => program.kill(), nothing)
  })
  test('without a standby nothing is acknowledged: 503 with Retry-After until one is back', async () => {
    const { database, traffic, programs } = cluster
    const leader = await database.leader()
    const standbys = database.members.filter((member) => member !== leader)
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
    await cluster.suffer('both standbys thawed', nothing, nothing)
  })
})
