/**
 * The reference deployment with deploy/ha/compose.yml: three PostgreSQL servers under Patroni, etcd and HAProxy, as containers. It takes
 * longer than the time of `.ci/run` allows; `npm run containers:ha` runs it.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { readCompose } from '../programs/deployment-files.ts'
import { Deployment, reasonAgainst } from './engine.ts'
import { HOST, Traffic, enter } from './traffic.ts'

const HA = 'deploy/ha/compose.yml'
const START_DEADLINE_MS = 600_000
const SERVERS = ['db-a', 'db-b', 'db-c']
const LEADER_DEADLINE_MS = 90_000
const ASK_IF_PRIMARY = 'import urllib.request; urllib.request.urlopen("http://127.0.0.1:8008/primary", timeout=4)'

const services = [...new Set([...Object.keys(readCompose().services), ...Object.keys(readCompose(HA).services)])]
const reason = reasonAgainst()

describe.skipIf(reason !== undefined)(
  `three database servers in containers${reason === undefined ? '' : ` (${reason})`}`,
  () => {
    let deployment: Deployment
    let traffic: Traffic

    beforeAll(async () => {
      deployment = await Deployment.start(HOST, services, HA)
      process.stdout.write(`all containers were healthy after ${(deployment.startedInMs / 1000).toFixed(0)} s\n`)
      const { domain, authority } = await enter(deployment)
      traffic = await Traffic.begin(domain, authority)
    }, START_DEADLINE_MS)
    afterAll(async () => {
      await (traffic as Traffic | undefined)?.[Symbol.asyncDispose]()
      await (deployment as Deployment | undefined)?.[Symbol.asyncDispose]()
    }, START_DEADLINE_MS)

    async function primary(): Promise<string> {
      const isPrimary = async (name: string) =>
        await deployment.exec(name, 'python3', '-c', ASK_IF_PRIMARY).then(
          () => true,
          () => false,
        )
      return await until(
        async () => {
          const answers = await Promise.all(SERVERS.map(isPrimary))
          return SERVERS.find((_, index) => answers[index])
        },
        'a server is the primary',
        LEADER_DEADLINE_MS,
      )
    }

    test('the kill of the container of the primary is survived', async () => {
      const name = await primary()
      await deployment.kill(name)
      const flowsMs = await traffic.flows(`after ${name} was killed`)
      await deployment.untilHealthy(name, LEADER_DEADLINE_MS)
      process.stdout.write(
        `traffic ${(flowsMs / 1000).toFixed(1)} s after the kill of ${name}; the primary is ${await primary()}\n`,
      )
    })

    test.each(['etcd-a', 'postgres'])('the kill of %s is survived', async (name) => {
      await deployment.kill(name)
      await deployment.untilHealthy(name, LEADER_DEADLINE_MS)
      await traffic.flows(`after ${name} was killed`)
    })

    test('nothing that was acknowledged is lost', async () => {
      await traffic.check('after all of it')
      expect(SERVERS).toContain(await primary())
    })
  },
)
