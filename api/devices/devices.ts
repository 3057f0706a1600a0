/** Composition of the room: clients, channels, connections, and the gate, which authorizes devices. */
import type { AccessPolicy, Identity, Journal } from '#api/identity/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import type { BulkTurns, RoutePlugin } from '#http/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { SharedLimits } from '#core/limits/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { channelRoutes, ChannelsService, legacyChannelRoutes } from './channels/index.ts'
import { GivenSecrets, clientRoutes, ClientsService } from './clients/index.ts'
import { startCommands } from './commands/index.ts'
import type { CommandDelivery } from './commands/index.ts'
import { createBulkTurns } from './connectable/bulk.ts'
import { connectionRoutes, ConnectionsService } from './connections/index.ts'
import { ClientWaits, createDeviceTopics } from './device-topics/index.ts'
import type { DeviceTopics } from './device-topics/index.ts'
import { MessageGate, identifyRoutes } from './gate/index.ts'
import { DeviceReports, DeviceStatesService, NotifiedDevices, stateRoutes } from './state/index.ts'

export type DeviceServices = {
  readonly clients: ClientsService
  readonly channels: ChannelsService
  readonly connections: ConnectionsService
}

export type Devices = DeviceServices & {
  readonly gate: MessageGate
  /** What devices send and receive about themselves, below `c/<domain>/`. */
  readonly topics: DeviceTopics
  /** The states of devices, for the devices themselves. */
  readonly reports: DeviceReports
  /** Commands for devices. */
  readonly commands: CommandDelivery
  /** Shared by all routes of this process that create or connect many entities. */
  readonly bulk: BulkTurns
  readonly routes: RoutePlugin
  /** Returns the same services on another database, journal and policy, such as those of a running transaction. */
  over(others: { database: Database; journal: Journal; access: AccessPolicy }): DeviceServices
  stop(): Promise<void>
}

/** A caller that waits for the state of a device looks again: another process does not tell of most reports. */
const STATE_LOOK_MS = 2_000

export function createDevices({
  database,
  bus,
  keyring,
  identity,
  limits,
  logger,
}: {
  database: Database
  bus: Bus
  keyring: Keyring
  identity: Identity
  limits: SharedLimits | undefined
  logger: Logger
}): Devices {
  const { access, journal, quotas } = identity
  const givenSecrets = new GivenSecrets(limits)
  const over: Devices['over'] = ({ database, journal, access }) => ({
    clients: new ClientsService({ database, journal, access, quotas, keyring, givenSecrets }),
    channels: new ChannelsService({ database, journal, access, quotas }),
    connections: new ConnectionsService({ journal, access }),
  })
  const services = over({ database, journal, access })
  const { clients, channels, connections } = services
  const gate = new MessageGate({ database, access, journal, keyring, logger })
  journal.listen(gate)
  const bulk = createBulkTurns(access)
  const topics = createDeviceTopics()
  const notified = new NotifiedDevices(database.db, logger)
  journal.follow('client_state', notified.listener)
  const stopping = new AbortController()
  const waits = new ClientWaits(journal, { family: 'client_state', lookAgainMs: STATE_LOOK_MS })
  const reports = new DeviceReports({ database, journal, notified, waits })
  topics.register(reports.noun)
  const states = new DeviceStatesService({ database, journal, access, waits, signal: stopping.signal })
  const commands = startCommands({ database, bus, identity, topics, logger })
  return {
    ...services,
    gate,
    topics,
    reports,
    commands: commands.delivery,
    bulk,
    over,
    async stop() {
      stopping.abort()
      waits.stop()
      notified.stop()
      topics.stop()
      givenSecrets.stop()
      await commands.stop()
    },
    routes: async (app) => {
      await clientRoutes(clients, bulk)(app)
      await identifyRoutes(gate)(app)
      await channelRoutes(channels, bulk)(app)
      await legacyChannelRoutes(channels, identity.groups)(app)
      await connectionRoutes(connections, bulk)(app)
      await stateRoutes(states)(app)
      await commands.routes(app)
    },
  }
}
