/** Publishes the output of tasks to channels, with the current permissions of the user that the task acts as. */
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
  messages: Pick<Messages, 'publish' | 'rates'>
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
    async publish({ userKey, domainId, channelId, subtopic, payload, createdAt, ...call }) {
      const { runId, taskId, fence, callId, traceparent } = call
      const principal = await findActingUser(database.db, userKey)
      if (principal === undefined) throw new ServiceError('forbidden', 'the user of the task was deleted or disabled')
      const path = { domain: domainId, channel: channelId }
      const access = await gate.authorize({ kind: 'user', principal }, path, 'publish')
      const body = Buffer.from(payload)
      const receivedAtSeconds = Date.parse(createdAt) / 1000
      // Counted and never delayed: they are read in order, for all domains.
      messages.rates.count(access.domainKey, body.length)
      await messages.publish({
        access,
        subtopic,
        protocol: 'task',
        receivedAtSeconds,
        content: parseContent(SENML_JSON, body, { subtopic, receivedAtSeconds }),
        original: { contentType: SENML_JSON, body },
        traceparent: traceparent ?? undefined,
        ...(taskId === null ? {} : { envelope: { run: { id: runId, task: taskId } } }),
        // The idempotency key identifies the call, so a repeated call stores nothing.
        idempotency: { scope: digest(`task publication ${runId} ${fence} ${callId}`), requestDigest: digest(payload) },
      })
    },
    onRefused: ({ runId, channelId }, { message: reason }) =>
      logger.warn({ run: runId, channel: channelId, reason }, 'rejected the output of a task'),
    onError: (error) => logger.warn({ err: error }, 'failed to publish the output of tasks; retrying'),
  })
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
