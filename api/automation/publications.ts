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
import { HELD_SECONDS, adoptPublication, pauseTask, startPublicationReader, whyUnusable } from '#queues/index.ts'
import type { RefusedFate, RefusedPublication } from '#queues/index.ts'
import { recordInJournal } from './refusals.ts'

export type PublicationDeps = {
  database: Database
  bus: Bus
  gate: Pick<MessageGate, 'authorize'>
  messages: Pick<Messages, 'publish' | 'rates'>
  logger: Logger
  intervalMs: number
}

const USER_GONE = 'the user of the task was deleted or disabled'

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
      if (principal === undefined) throw new ServiceError('forbidden', USER_GONE)
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
    async onRefused(refused) {
      const refusals = new Map<number, PublicationRefusal>()
      const faults = new Map<string, Promise<string | undefined>>()
      const fates: RefusedFate[] = []
      for (const one of refused) {
        const { taskKey, taskId, runId, channelId } = one.publication
        const { isRecorded, reason, fate } = await judge(database, one, faults)
        fates.push(fate)
        logger.warn({ task: taskId, run: runId, channel: channelId, reason, fate }, 'rejected the output of a task')
        if (isRecorded) continue
        const count = 1 + (refusals.get(taskKey)?.count ?? 0)
        refusals.set(taskKey, { taskKey, source: 'publication', reason, count })
      }
      await database.transaction(async (tx) => await recordInJournal(tx, [...refusals.values()]))
      return fates
    },
    onError: (error) => logger.warn({ err: error }, 'failed to publish the output of tasks; retrying'),
  })
}

type PublicationRefusal = { taskKey: number; source: 'publication'; reason: string; count: number }

/** `isRecorded`: the task shows it already, or has another grantor by now, and the publication is tried again. */
type Judgement = { isRecorded: boolean; reason: string; fate: RefusedFate }

/**
 * The gate says the same about a channel that is gone, one that is disabled, and a user without the right. A lost right pauses the
 * task, and the publication waits (contract decision 88).
 */
async function judge(
  database: Database,
  { publication: { key, domainId, channelId, taskId, taskKey, userKey }, refusal }: RefusedPublication,
  /** The faults by channel. Each channel is looked up once. */
  faults: Map<string, Promise<string | undefined>>,
): Promise<Judgement> {
  const { db } = database
  const { kind, message: reason } = refusal
  const givenUp = (why: string): Judgement => ({
    isRecorded: false,
    reason: why,
    fate: taskId === null ? 'remove' : { reason: why },
  })
  if (kind !== 'forbidden' && kind !== 'not_found') return givenUp(reason)
  const looked = faults.get(channelId) ?? whyUnusable(db, domainId, channelId)
  faults.set(channelId, looked)
  const fault = await looked
  if (fault !== undefined) return givenUp(fault)
  const right = reason === USER_GONE ? reason : `${reason}: needs publish on channel ${channelId}`
  if (await pause(database, taskKey, userKey, right))
    return { isRecorded: true, reason: right, fate: { waitSeconds: HELD_SECONDS } }
  if (await adoptPublication(db, key)) return { isRecorded: true, reason, fate: { waitSeconds: 0 } }
  return givenUp(right)
}

/** True: the task is paused, and shows why. */
async function pause(database: Database, taskKey: number, userKey: number, reason: string): Promise<boolean> {
  return await database.transaction(async (tx) => {
    if (!(await pauseTask(tx, taskKey, userKey))) return false
    await recordInJournal(tx, [{ taskKey, source: 'right', reason, count: 1 }])
    return true
  })
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
