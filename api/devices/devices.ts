/** Composition of the room: clients, channels, connections, and the gate, which authorizes devices. */
import type { AccessPolicy, Identity, Journal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { channelRoutes, createChannelsService, legacyChannelRoutes } from './channels/index.ts'
import type { ChannelsService } from './channels/index.ts'
import { clientRoutes, ClientsService } from './clients/index.ts'
import { connectionRoutes, createConnectionsService } from './connections/index.ts'
import type { ConnectionsService } from './connections/index.ts'
import { MessageGate, identifyRoutes } from './gate/index.ts'

export type DeviceServices = {
  readonly clients: ClientsService
  readonly channels: ChannelsService
  readonly connections: ConnectionsService
}

export type Devices = DeviceServices & {
  readonly gate: MessageGate
  readonly routes: RoutePlugin
  /** Returns the same services on another database, journal and policy, such as those of a running transaction. */
  over(others: { database: Database; journal: Journal; access: AccessPolicy }): DeviceServices
}

export function createDevices({
  database,
  keyring,
  identity,
  logger,
}: {
  database: Database
  keyring: Keyring
  identity: Identity
  logger: Logger
}): Devices {
  const { access, journal, quotas } = identity
  const over: Devices['over'] = ({ database, journal, access }) => ({
    clients: new ClientsService({ database, journal, access, quotas, keyring }),
    channels: createChannelsService({ database, journal, access, quotas }),
    connections: createConnectionsService({ journal, access }),
  })
  const services = over({ database, journal, access })
  const { clients, channels, connections } = services
  const gate = new MessageGate({ database, access, journal, keyring, logger })
  journal.listen(gate)
  return {
    ...services,
    gate,
    over,
    routes: async (app) => {
      await clientRoutes(clients)(app)
      await identifyRoutes(gate)(app)
      await channelRoutes(channels)(app)
      await legacyChannelRoutes(channels, identity.groups)(app)
      await connectionRoutes(connections)(app)
    },
  }
}
