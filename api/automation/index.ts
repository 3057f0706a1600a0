/**
 * Connects messages and tasks: messages start tasks, tasks publish messages, replays start tasks for stored messages.
 */
import type { MessageGate } from '#api/devices/index.ts'
import type { FullDomains } from '#api/identity/index.ts'
import type { Messages } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPublications } from './publications.ts'
import { startReplays } from './replays.ts'
import { startTriggers } from './triggers.ts'

export { createChannelReader } from './channel-reader.ts'
export { QUEUE_METRICS, boundQueuedBytes, queueGauges, readQueuedBytes } from '#queues/index.ts'

export type AutomationDeps = {
  database: Database
  bus: Bus
  gate: MessageGate
  messages: Messages
  /** Domains whose quota `queued_bytes` is used up. */
  fullDomains: FullDomains
  logger: Logger
  /** Polling interval while there is work. Tests shorten it. */
  intervalMs?: number
}

const INTERVAL_MS = 100

/** Runs on every node of the platform. Nodes lock the rows that they process, so each row is processed by one node. */
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
