/**
 * Machines that are cut off while they continue to run: nothing says so to either side. The primary's machine must not acknowledge
 * anything then, and follow the new primary when it is back.
 */
import { execFile } from 'node:child_process'
import { describe, expect, test } from 'vitest'
import { nobodyAccount } from '#postgres/embedded/account.ts'
import { until } from '../harness/until.ts'
import { activeOf, hasKeepalived, twoBalancers } from './balancer.ts'
import type { Balancer } from './balancer.ts'
import type { Cluster, Fault } from './cluster.ts'
import { DATABASE_PASSWORD, hasClusterPrograms } from './database-cluster.ts'
import type { Member } from './database-cluster.ts'
import { GOAL_SECONDS, LASTS_MS, LASTS_SECONDS, MACHINE_GOAL_SECONDS } from './faults.ts'
import { hasPrivateNetwork, machines } from './network.ts'
import { startCluster } from './start.ts'

/** A COMMIT that takes longer waits for a standby that does not answer. */
const COMMIT_DEADLINE_MS = 5000
/** Two failed checks of HAProxy, three advertisements of VRRP, and new connections. */
const BALANCER_GOAL_SECONDS = 5

/** Tries to commit on the machine itself, which its own PostgreSQL hears. True when that is acknowledged. */
async function commits({ site }: Member): Promise<boolean> {
  const url = `postgres://postgres:${DATABASE_PASSWORD}@${site.address}:${site.ports.postgres}/postgres`
  const statement = "SELECT pg_logical_emit_message(true, 'skein', 'cut off')"
  const { file, args } = site.command('psql', ['--no-psqlrc', url, '--command', statement], nobodyAccount())
  return await new Promise((resolve) => {
    execFile(file, args, { timeout: COMMIT_DEADLINE_MS, killSignal: 'SIGKILL' }, (error) => resolve(error === null))
  })
}

/** The cable is out for as long as every fault that lasts, and until there is service again. */
const cutOff = (role: 'primary' | 'standby', goalSeconds: number): Fault => ({
  name: `machine of the ${role} cut off for ${LASTS_SECONDS} s`,
  goalSeconds,
  async prepare({ database }, trial) {
    const leader = await database.leader()
    const member = role === 'primary' ? leader : ((await database.standbys())[trial % 2] as Member)
    let isCut = false
    let acknowledged = 0
    let tries = 0
    const trying = async () => {
      while (isCut) {
        tries += 1
        if ((await commits(member)) && isCut) acknowledged += 1
      }
    }
    let ended = Promise.resolve<unknown>(undefined)
    return {
      cause() {
        member.site.unplug()
        isCut = true
        ended = Promise.all([trying(), new Promise((resolve) => setTimeout(resolve, LASTS_MS))])
      },
      async repair() {
        await new Promise((resolve) => setTimeout(resolve, LASTS_MS))
        isCut = false
        await ended
        member.site.plug()
      },
      async verify() {
        expect(acknowledged, `COMMITs acknowledged by ${member.name} while it was cut off`).toBe(0)
        expect(tries).toBeGreaterThan(0)
        if (role === 'primary') expect((await database.leader()).name).not.toBe(leader.name)
        else expect((await database.leader()).name).toBe(leader.name)
      },
    }
  },
})

/** `lb-0` and `lb-1` have HAProxy and keepalived. */
async function activeBalancer({ database: { balancers } }: Cluster): Promise<Balancer> {
  return await until(() => activeOf(balancers), 'the shared address of HAProxy is on a machine')
}

const BALANCERS: readonly Fault[] = [
  {
    name: 'HAProxy of the shared address killed',
    goalSeconds: BALANCER_GOAL_SECONDS,
    async prepare(cluster) {
      const active = await activeBalancer(cluster)
      return {
        cause: () => active.haproxy.kill(),
        repair: () => active.haproxy.begin(),
        verify: async () => expect(await activeBalancer(cluster)).not.toBe(active),
      }
    },
  },
  {
    name: `machine of the shared address of HAProxy cut off for ${LASTS_SECONDS} s`,
    goalSeconds: BALANCER_GOAL_SECONDS,
    async prepare(cluster) {
      const active = await activeBalancer(cluster)
      return {
        cause: () => active.site.unplug(),
        async repair() {
          await new Promise((resolve) => setTimeout(resolve, LASTS_MS))
          active.site.plug()
        },
      }
    },
  },
]

describe.runIf(hasClusterPrograms() && hasPrivateNetwork() && hasKeepalived())('machines that can be cut off', () => {
  const cluster = startCluster({ network: machines, balance: twoBalancers })

  test.for([...BALANCERS, cutOff('primary', MACHINE_GOAL_SECONDS), cutOff('standby', GOAL_SECONDS)])(
    '$name',
    async (fault) => {
      await cluster().suffer(fault)
    },
  )
})
