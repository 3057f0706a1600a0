/** Where messages and tasks meet: messages start tasks, tasks publish messages, stored ones are gone through again. */
import type { MessageGate } from '#api/devices/index.ts'
import type { Messages } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPublications } from './publications.ts'
import { startReplays } from './replays.ts'
import { startTriggers } from './triggers.ts'

export { createChannelReader } from './channel-reader.ts'

export type AutomationDeps = {
  database: Database
  bus: Bus
  gate: MessageGate
  messages: Messages
  logger: Logger
  /** How often is looked for something to do while there is some; tests shorten it. */
  intervalMs?: number
}

const INTERVAL_MS = 100

/** Runs on every node of the platform; what one of them does the others leave alone. */
export async function startAutomation({
  intervalMs = INTERVAL_MS,
  ...deps
}: AutomationDeps): Promise<{ stop(): Promise<void> }> {
  const triggers = await startTriggers({ ...deps, intervalMs })
  const publications = startPublications({ ...deps, intervalMs })
  const replays = startReplays({ ...deps, intervalMs })
  return {
    async stop() {
      await Promise.all([triggers.stop(), publications.stop(), replays.stop()])
    },
  }
}
