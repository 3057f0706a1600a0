/** Composition of the platform: the rooms of the API, stacked, over one ground. */
import type { FastifyRequest } from 'fastify'
import type { Ground } from '#core/ground/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { Lifecycle } from '#core/lifecycle.ts'
import { httpMessageRoutes } from './adapters/http/index.ts'
import { createDevices } from './devices/index.ts'
import type { Devices } from './devices/index.ts'
import { startIdentity } from './identity/index.ts'
import type { Identity, IdentityConfig } from './identity/index.ts'
import { startMessages } from './messages/index.ts'
import type { Messages } from './messages/index.ts'

export type Api = {
  readonly identity: Identity
  readonly devices: Devices
  readonly messages: Messages
  readonly routes: RoutePlugin
  /** The edge's authenticate hook. */
  authenticate(request: FastifyRequest): Promise<void>
}

export type ApiOptions = {
  ground: Ground
  config: IdentityConfig
  /** How often changes made by other processes are looked for; tests shorten it. */
  tailIntervalMs?: number
}

export async function startApi(life: Lifecycle, { ground, config, tailIntervalMs }: ApiOptions): Promise<Api> {
  const { database, bus, keyring, logger, dataDir, hasRoom } = ground
  const identity = await life.start('identity', async () => {
    const value = await startIdentity({
      config,
      database,
      bus,
      keyring,
      logger,
      dataDir,
      ...(tailIntervalMs === undefined ? {} : { tailIntervalMs }),
    })
    return { value, stop: () => value.stop() }
  })
  const devices = createDevices({ database, keyring, identity })
  const messages = await life.start('messages', async () => {
    const value = await startMessages({ database, logger, hasRoom })
    return { value, stop: () => value.close() }
  })
  return {
    identity,
    devices,
    messages,
    authenticate: (request) => identity.authenticate(request),
    routes: async (app) => {
      await identity.routes(app)
      await devices.routes(app)
      await httpMessageRoutes({ messages, gate: devices.gate, tokens: identity.tokens })(app)
    },
  }
}
