/** Commands to clients: users give them, devices carry them out and answer, and each has one end. */
import type { Identity } from '#api/identity/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { ClientWaits } from '../device-topics/index.ts'
import type { DeviceTopics } from '../device-topics/index.ts'
import { bulkCommandRoutes } from './bulk/routes.ts'
import { BulkCommandsService } from './bulk/service.ts'
import { CommandDelivery } from './delivery.ts'
import { createCommandNoun } from './noun.ts'
import { OpenCommands } from './open.ts'
import { commandRoutes } from './routes.ts'
import { CommandsService } from './service.ts'
import { startCommandSweep } from './sweep.ts'

export type { CommandDelivery } from './delivery.ts'
export { COMMAND_METRICS, commandGauges } from './metrics.ts'
export type { Offered } from './repository.ts'
export { Answered, CommandResult, OfferedCommands, presentOffered } from './schema.ts'

export type Commands = { readonly delivery: CommandDelivery; readonly routes: RoutePlugin; stop(): Promise<void> }

/** A caller that waits looks again by itself after this time. */
const LOOK_AGAIN_MS = 15_000

export function startCommands({
  database,
  bus,
  identity: { access, journal, quotas },
  topics,
  logger,
}: {
  database: Database
  bus: Bus
  identity: Pick<Identity, 'access' | 'journal' | 'quotas'>
  topics: DeviceTopics
  logger: Logger
}): Commands {
  const stopping = new AbortController()
  const { signal } = stopping
  const waits = new ClientWaits(journal, { family: 'command', lookAgainMs: LOOK_AGAIN_MS })
  const service = new CommandsService({ database, journal, access, quotas, waits, bus, signal })
  const bulks = new BulkCommandsService({ database, journal, access, quotas })
  const delivery = new CommandDelivery({ open: new OpenCommands(database.db, logger), journal, waits, signal })
  topics.register(createCommandNoun(delivery))
  const sweep = startCommandSweep({ database, journal, bus, logger })
  return {
    delivery,
    routes: async (app) => {
      await commandRoutes(service)(app)
      await bulkCommandRoutes(bulks)(app)
    },
    async stop() {
      stopping.abort()
      waits.stop()
      await sweep.stop()
    },
  }
}
