/** Composition of the room: clients, channels, what connects them, and the gate that messages pass. */
import type { Identity } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { channelRoutes, createChannelsService, legacyChannelRoutes } from './channels/index.ts'
import { clientRoutes, createClientsService } from './clients/index.ts'
import { connectionRoutes, createConnectionsService } from './connections/index.ts'
import { createMessageGate, identifyRoutes } from './gate/index.ts'
import type { MessageGate } from './gate/index.ts'

export type Devices = { readonly gate: MessageGate; readonly routes: RoutePlugin }

export function createDevices({
  database,
  keyring,
  identity,
}: {
  database: Database
  keyring: Keyring
  identity: Identity
}): Devices {
  const { access, journal } = identity
  const clients = createClientsService({ database, journal, access, keyring })
  const channels = createChannelsService({ database, journal, access })
  const connections = createConnectionsService({ journal, access })
  const gate = createMessageGate({ database, access, journal, keyring })
  journal.listen(gate)
  return {
    gate,
    routes: async (app) => {
      await clientRoutes(clients)(app)
      await identifyRoutes(gate)(app)
      await channelRoutes(channels)(app)
      await legacyChannelRoutes(channels, identity.groups)(app)
      await connectionRoutes(connections)(app)
    },
  }
}
