/** From an external id and key to messages over MQTT with a certificate: the agent of examples/agent, end to end. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { MqttServer } from '#api/adapters/mqtt/index.ts'
import { PlatformBackend } from '#api/adapters/mqtt/platform/backend.ts'
import { startSessionStore } from '#api/messages/index.ts'
import { listen } from '#http/index.ts'
import type { Listeners } from '#http/index.ts'
import { newTenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'

const AGENT = join(import.meta.dirname, '../../examples/agent/agent.ts')

const api = useWorld(() => startTestApi({ environment: { SKEIN_PROVISION_X509_PROVISIONING: 'true' } }))
const tenant = useWorld(() => newTenant(api))
let listeners: Listeners
let broker: MqttServer
const agents: ChildProcess[] = []

beforeAll(async () => {
  const { devices, messages, identity, provisioning } = api.api
  const { ensureTls, clientOf } = provisioning.certificates
  listeners = await listen(api.app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'SKEIN_HTTP_PORT' }],
    logger,
  })
  broker = await MqttServer.start({
    host: '127.0.0.1',
    port: undefined,
    tls: { port: 0, files: ensureTls(undefined), clientOf },
    maxPacketBytes: 65_536,
    budget: api.infrastructure.streams.budget,
    backend: (host) =>
      new PlatformBackend(
        {
          gate: devices.gate,
          topics: devices.topics,
          messages,
          logger,
          startStore: (store) =>
            startSessionStore({
              ...store,
              database: api.infrastructure.database,
              node: api.infrastructure.node,
              journal: identity.journal,
              quotas: identity.quotas,
              logger,
              maxSessionsPerClient: 20,
            }),
        },
        host,
      ),
    logger,
  })
  await broker.listen()
  identity.journal.listen({
    invalidate: (keys) => broker.recheck(keys),
    invalidateAll: () => broker.recheck(undefined),
  })
})
afterAll(async () => {
  for (const agent of agents) agent.kill('SIGKILL')
  await broker.stop()
  await listeners.stop()
})

/** A provisioned device, its agent running. */
async function startAgent(name: string) {
  const order = { external_id: `id of ${name}`, external_key: `the external key of ${name}`, name }
  const made = (await tenant.call('POST', '/mapping', order)).json<{
    clients: { id: string }[]
    channels: { id: string }[]
  }>()
  const [control, data] = made.channels.map(({ id }) => id)
  const agent = spawn(
    process.execPath,
    [
      AGENT,
      '--id',
      order.external_id,
      '--key',
      order.external_key,
      '--url',
      `http://127.0.0.1:${listeners.ports[0]}`,
      '--mqtt',
      `mqtts://127.0.0.1:${broker.tlsPort}`,
    ],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  )
  agents.push(agent)
  let output = ''
  for (const stream of [agent.stdout, agent.stderr]) stream?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  let exitCode: number | null | undefined
  agent.once('exit', (code) => (exitCode = code))
  return {
    clientId: made.clients[0]?.id ?? '',
    output: () => output,
    exitCode: () => exitCode,
    command: (records: unknown) =>
      tenant.call('POST', `/m/${tenant.domainId}/c/${control}`, JSON.stringify(records), {
        'content-type': 'application/senml+json',
      }),
    stored: async () =>
      (await tenant.call('GET', `/m/${tenant.domainId}/c/${data}`)).json<{
        total: number
        messages: { publisher: string; protocol: string; name: string }[]
      }>(),
  }
}

it('the agent bootstraps, connects with its certificate, publishes and obeys its control channel', async () => {
  const agent = await startAgent('gate')
  await until(async () => (await agent.stored()).total > 0, `the first message (${agent.output()})`)
  expect(agent.output()).toContain(`connected as ${agent.clientId}, by certificate`)
  expect((await agent.stored()).messages[0]).toMatchObject({
    publisher: agent.clientId,
    protocol: 'mqtt',
    name: 'temperature',
  })
  await until(async () => {
    await agent.command([{ n: 'interval', v: 0.05 }])
    return (await agent.stored()).total > 4
  }, 'it publishes more often')
  await agent.command([{ n: 'stop', vb: true }])
  await until(() => agent.exitCode() === 0, 'it ends')
})

it('the agent is disconnected within a second of the revocation of its certificate', async () => {
  const agent = await startAgent('thief')
  await until(async () => (await agent.stored()).total > 0, 'the first message')
  const open = broker.connections
  expect((await tenant.call('DELETE', `/${tenant.domainId}/certs/${agent.clientId}`)).status).toBe(200)
  await until(() => broker.connections < open, 'its connection is closed', 1000)
})
