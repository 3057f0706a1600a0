/**
 * The faults of stage 3 of docs/scale.md that take long: frozen programs and a lost majority of etcd. `npm run cluster` runs
 * them after the short ones.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Cluster } from './cluster.ts'
import { hasClusterPrograms } from './database-cluster.ts'
import type { Member } from './database-cluster.ts'

const START_DEADLINE_MS = 240_000
/** Longer than the lease of the leader (`ttl` of Patroni, 20 s). */
const FAULT_MS = 30_000

describe.runIf(hasClusterPrograms())('faults that last', () => {
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
  const passes = (durationMs: number) => new Promise((resolve) => setTimeout(resolve, durationMs))

  test('a primary that is frozen beyond its lease is replaced, and acknowledges nothing when it wakes', async () => {
    const leader = await cluster.database.leader()
    const freeze = () => leader.freeze()
    const wake = async () => {
      await passes(FAULT_MS)
      leader.thaw()
    }
    await cluster.suffer('primary frozen for 30 s', freeze, wake)
    expect((await cluster.database.leader()).name).not.toBe(leader.name)
  })

  test('one of three etcd is lost', async () => {
    const [member] = cluster.database.members as [Member]
    const lose = async () => {
      await member.etcd.kill()
      await passes(FAULT_MS)
    }
    await cluster.suffer('one etcd lost for 30 s', lose, () => member.etcd.begin())
  })

  test('the primary goes on without a majority of etcd', async () => {
    const leader = await cluster.database.leader()
    const [one, other] = cluster.database.members as [Member, Member]
    const lose = async () => {
      await Promise.all([one.etcd.kill(), other.etcd.kill()])
      await passes(FAULT_MS)
    }
    const repair = () => {
      one.etcd.begin()
      other.etcd.begin()
    }
    await cluster.suffer('two of three etcd lost for 30 s', lose, repair)
    expect((await cluster.database.leader()).name).toBe(leader.name)
  })

  test('both standbys are frozen', async () => {
    const leader = await cluster.database.leader()
    const standbys = cluster.database.members.filter((member) => member !== leader)
    const freeze = async () => {
      for (const standby of standbys) standby.freezePostgres()
      await passes(FAULT_MS)
      for (const standby of standbys) standby.thawPostgres()
    }
    await cluster.suffer('both standbys frozen for 30 s', freeze, nothing)
  })
})
