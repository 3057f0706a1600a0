/** What is done to the cluster, and how long it may be without service then. */
import { expect } from 'vitest'
import type { Fault } from './cluster.ts'
import type { Member } from './database-cluster.ts'

/** After PostgreSQL of the primary was killed. */
const POSTGRES_GOAL_SECONDS = 10
/** After the machine of the primary was lost. */
export const MACHINE_GOAL_SECONDS = 30
/** After anything else. */
export const GOAL_SECONDS = 2
/** Longer than the lease of the leader (`ttl` of Patroni, 20 s). */
export const LASTS_MS = 30_000
export const LASTS_SECONDS = LASTS_MS / 1000

const lasts = () => new Promise<void>((resolve) => setTimeout(resolve, LASTS_MS))

/** One of the programs, another one in each trial. */
const programKilled = (kind: 'api' | 'managers' | 'workers', name: string): Fault => ({
  name: `${name} killed`,
  goalSeconds: GOAL_SECONDS,
  prepare({ programs }, trial) {
    const list = programs[kind]
    return { cause: () => list[trial % list.length]?.kill() }
  },
})

export const POSTGRES_KILLED: Fault = {
  name: 'PostgreSQL of the primary killed',
  goalSeconds: POSTGRES_GOAL_SECONDS,
  async prepare({ database }) {
    const leader = await database.leader()
    return {
      cause: () => leader.killPostgres(),
      verify: async () => expect((await database.leader()).name).not.toBe(leader.name),
    }
  },
}

export const API_KILLED: Fault = programKilled('api', 'an api node')

export const KILLS: readonly Fault[] = [
  POSTGRES_KILLED,
  {
    name: 'machine of the primary lost',
    goalSeconds: MACHINE_GOAL_SECONDS,
    async prepare({ database }) {
      const leader = await database.leader()
      return {
        cause: () => leader.killPatroniAndPostgres(),
        repair: () => leader.patroni.begin(),
        verify: async () => expect((await database.leader()).name).not.toBe(leader.name),
      }
    },
  },
  {
    name: 'Redis killed',
    goalSeconds: GOAL_SECONDS,
    prepare: ({ redis }) => ({ cause: () => redis.kill(), repair: () => redis.begin() }),
  },
  {
    name: 'HAProxy killed and started again',
    goalSeconds: GOAL_SECONDS,
    prepare: ({ database: { balancers } }) => ({
      async cause() {
        for (const { haproxy } of balancers) {
          await haproxy.kill()
          haproxy.begin()
        }
      },
    }),
  },
  API_KILLED,
  programKilled('managers', 'a manager'),
  programKilled('workers', 'a worker'),
]

/** Frozen programs and a lost majority of etcd. */
export const LASTING: readonly Fault[] = [
  {
    // It acknowledges nothing when it wakes: the check would find it missing.
    name: `PostgreSQL and Patroni of the primary frozen for ${LASTS_SECONDS} s`,
    goalSeconds: MACHINE_GOAL_SECONDS,
    async prepare({ database }) {
      const leader = await database.leader()
      return {
        cause: () => leader.freeze(),
        async repair() {
          await lasts()
          leader.thaw()
        },
        verify: async () => expect((await database.leader()).name).not.toBe(leader.name),
      }
    },
  },
  {
    name: `one of three etcd lost for ${LASTS_SECONDS} s`,
    goalSeconds: GOAL_SECONDS,
    prepare({ database }, trial) {
      const member = database.members[trial % database.members.length] as Member
      return {
        async cause() {
          await member.etcd.kill()
          await lasts()
        },
        repair: () => member.etcd.begin(),
      }
    },
  },
  {
    name: `two of three etcd lost for ${LASTS_SECONDS} s`,
    goalSeconds: GOAL_SECONDS,
    async prepare({ database }) {
      const leader = await database.leader()
      const [one, other] = database.members as [Member, Member]
      return {
        async cause() {
          await Promise.all([one.etcd.kill(), other.etcd.kill()])
          await lasts()
        },
        repair() {
          one.etcd.begin()
          other.etcd.begin()
        },
        verify: async () => expect((await database.leader()).name).toBe(leader.name),
      }
    },
  },
  {
    name: `both standbys frozen for ${LASTS_SECONDS} s`,
    // Nothing is acknowledged meanwhile.
    goalSeconds: LASTS_SECONDS + GOAL_SECONDS,
    async prepare({ database }) {
      const standbys = await database.standbys()
      return {
        async cause() {
          for (const standby of standbys) standby.freezePostgres()
          await lasts()
          for (const standby of standbys) standby.thawPostgres()
        },
      }
    },
  },
]
