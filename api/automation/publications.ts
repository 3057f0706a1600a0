/** Publishes what tasks publish to its channels, with the rights that their users have now. */
import { createHash } from 'node:crypto'
import { findActingUser } from '#api/identity/index.ts'
import type { MessageGate } from '#api/devices/index.ts'
import { SENML_JSON, parseContent } from '#api/messages/index.ts'
import type { Messages } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPublicationReader } from '#queues/index.ts'

export type PublicationDeps = {
  database: Database
  bus: Bus
  gate: Pick<MessageGate, 'authorize'>
  messages: Pick<Messages, 'publish'>
  logger: Logger
  intervalMs: number
}

export function startPublications({ database, bus, gate, messages, logger, intervalMs }: PublicationDeps): {
  stop(): Promise<void>
} {
  return startPublicationReader({
    database,
    bus,
    intervalMs,
    async publish({ userKey, domainId, channelId, subtopic, payload, createdAt, runId, fence, callId }) {
      const principal = await findActingUser(database.db, userKey)
      if (principal === undefined)
        throw new ServiceError('forbidden', 'the user that the task acts as is gone or disabled')
      const path = { domain: domainId, channel: channelId }
      const access = await gate.authorize({ kind: 'user', principal }, path, 'publish')
      const body = Buffer.from(payload)
      const receivedAtSeconds = Date.parse(createdAt) / 1000
      await messages.publish({
        access,
        subtopic,
        protocol: 'task',
        receivedAtSeconds,
        content: parseContent(SENML_JSON, body, { subtopic, receivedAtSeconds }),
        original: { contentType: SENML_JSON, body },
        // Stored under the name of its call: a repeated one stores nothing.
        idempotency: { scope: digest(`task publication ${runId} ${fence} ${callId}`), requestDigest: digest(payload) },
      })
    },
    onRefused: ({ runId, channelId }, { message: reason }) =>
      logger.warn({ run: runId, channel: channelId, reason }, 'refused what a task published'),
    onError: (error) => logger.warn({ err: error }, "failed to publish tasks' output"),
  })
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
