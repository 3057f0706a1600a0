/** What the tests of MQTT share: the plant of the tests of messages, and servers on free ports over its database. */
import { PlatformBackend } from '#api/adapters/mqtt/platform/backend.ts'
import { MqttServer, createMqttUpgrades } from '#api/adapters/mqtt/index.ts'
import type { MqttServerOptions } from '#api/adapters/mqtt/index.ts'
import { removeDeadNodes, startSessionStore } from '#api/messages/index.ts'
import type { SessionStore } from '#api/messages/index.ts'
import { createHttpApp, createMetrics, listen } from '#http/index.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi } from '../harness/api.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { startLivingNode } from '../harness/node.ts'
import type { Device, Plant } from '../messages/support.ts'
import { connectPeer } from './peer.ts'
import type { Connecting, Peer } from './peer.ts'

export const MAX_PACKET_BYTES = 256 * 1024

/** The promise is a second; here it must not hang on what else the machine does. */
export const REVOKED_WITHIN_MS = 30_000

/** No node is declared dead because the machine is busy; a test of dead nodes sets its own deadline. */
const NEVER_DEAD_SECONDS = 60

export type Node = { readonly server: MqttServer; readonly port: number; stop(): Promise<void> }

/** A second process over the same database; hints between the two are missing, as while Redis is away. */
export function anotherProcess({ api }: Plant): Promise<TestApi> {
  const { database, address } = api
  return startTestApi({ database: { database, address, [Symbol.asyncDispose]: () => Promise.resolve() } as never })
}

/** A node of the platform: `api` is its process, the database may be another's. */
export async function startNode(
  api: TestApi,
  {
    roundMs = 25,
    deadAfterSeconds = NEVER_DEAD_SECONDS,
    maxSessionsPerClient = 1_000,
    storeOf = (store) => store,
    ...options
  }: Pick<MqttServerOptions, 'metrics' | 'openings' | 'tls' | 'trustProxy'> & {
    /** How often it says where its sessions stand. */
    roundMs?: number
    /** The time after which it is dead without a sign of life. */
    deadAfterSeconds?: number
    /** Above what the tests of other things open. */
    maxSessionsPerClient?: number
    /** What stands before its store of sessions. */
    storeOf?: (store: SessionStore) => SessionStore
  } = {},
): Promise<Node> {
  const { devices, messages, identity } = api.api
  const { database } = api.infrastructure
  const living = await startLivingNode(database, { deadAfterSeconds })
  living.removeDeadWith(() => removeDeadNodes(identity.journal))
  let endDisabledSessions: ((keys: readonly number[]) => void) | undefined
  const server = await MqttServer.start({
    host: '127.0.0.1',
    port: 0,
    maxPacketBytes: MAX_PACKET_BYTES,
    budget: api.infrastructure.streams.budget,
    backend(host) {
      const backend = new PlatformBackend(
        {
          gate: devices.gate,
          topics: devices.topics,
          messages,
          logger,
          startStore: (store) =>
            storeOf(
              startSessionStore({
                ...store,
                database,
                node: living,
                journal: identity.journal,
                quotas: identity.quotas,
                logger,
                roundMs,
                maxSessionsPerClient,
              }),
            ),
        },
        host,
      )
      endDisabledSessions = (keys) => backend.endDisabledSessions(keys)
      return backend
    },
    logger,
    ...options,
  })
  await server.listen()
  identity.journal.listen({
    invalidate(keys) {
      endDisabledSessions?.(keys)
      server.recheck(keys)
    },
    invalidateAll: () => server.recheck(undefined),
  })
  return {
    server,
    port: server.port as number,
    async stop() {
      await server.stop()
      await living.stop()
    },
  }
}

/** The limit of a WebSocket message. */
export const MAX_FRAME_BYTES = 64 * 1024

export type WebSockets = { readonly port: number; stop(): Promise<void> }

/** A listener of the platform's HTTP that gives the WebSockets at /mqtt to the node. */
export async function listenForWebSockets(api: TestApi, { server }: Node): Promise<WebSockets> {
  const app = createHttpApp({
    logger,
    health: {
      build: api.infrastructure.build,
      metrics: createMetrics(),
      readiness: api.infrastructure.readiness,
      serviceOf: () => 'test',
    },
    maxBodyBytes: 1024 * 1024,
    corsOrigins: [],
    trustProxy: [],
    authenticate: api.api.authenticate,
  })
  const upgrades = createMqttUpgrades((stream, address) => server.accept(stream, address), {
    addressOf: app.callerAddress,
    maxFrameBytes: MAX_FRAME_BYTES,
  })
  app.server.on('upgrade', (request, socket, head) => {
    if (!upgrades.take(request, socket, head)) socket.destroy()
  })
  const ports = [{ port: 0, isOptional: false, setting: 'TEST' }]
  const listeners = await listen(app, { host: '127.0.0.1', ports, logger })
  return { port: listeners.ports[0] as number, stop: () => listeners.stop(100) }
}

export const as = (device: Device, more: Connecting = {}): Connecting => ({
  username: device.id,
  password: Buffer.from(device.secret),
  ...more,
})

/** Ends the connection of a peer; its session is away when this resolves. A socket that is only dropped may still be served for a while. */
export async function leave(peer: Peer): Promise<void> {
  peer.send({ cmd: 'disconnect' })
  await peer.closed()
}

/** A device that is connected to a channel of its own, with its topic and its peers. */
export async function aDevice(plant: Plant, port: number) {
  const device = await plant.newConnectedDevice()
  const topic = `m/${plant.domainId}/c/${device.channelId}`
  return {
    ...device,
    topic,
    connect: (more: Connecting = {}, at: number = port) => connectPeer(at, as(device, more)),
    /** Sessions of the device that are connected and have a subscription. */
    connections: async () => {
      const path = `/${plant.domainId}/clients/${device.id}/sessions`
      const { sessions } = (await plant.owner.call('GET', path)).json<{ sessions: { subscriptions: unknown[] }[] }>()
      return sessions.filter(({ subscriptions }) => subscriptions.length > 0).length
    },
    stored: async (format = 'messages') =>
      (
        await plant.owner.call('GET', `/m/${plant.domainId}/c/${device.channelId}?limit=1000&dir=asc&format=${format}`)
      ).json<{ messages: Record<string, unknown>[] }>().messages,
  }
}
