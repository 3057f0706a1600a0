/** Replays: passes stored messages to the task managers as if they had just arrived, record by record, oldest first. */
import { findActingUser } from '#api/identity/index.ts'
import type { MessageGate } from '#api/devices/index.ts'
import type { Messages, StoredMessage } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startReplayReader, whyUnusable } from '#queues/index.ts'
import { recordInJournal } from './refusals.ts'
import type { NewMessage, OpenReplay, ReplayStep, TriggerMessage } from '#queues/index.ts'

export type ReplayDeps = {
  database: Database
  bus: Bus
  gate: Pick<MessageGate, 'authorize'>
  messages: Pick<Messages, 'read'>
  logger: Logger
  intervalMs: number
}

/** Records. */
const PAGE = 200
const refusedFor = (refused: string): ReplayStep => ({ messages: [], next: undefined, refused })

export function startReplays({ database, bus, gate, messages, logger, intervalMs }: ReplayDeps): {
  stop(): Promise<void>
} {
  async function readPage(replay: OpenReplay): Promise<ReplayStep> {
    const principal = await findActingUser(database.db, replay.userKey)
    if (principal === undefined) return refusedFor('the user of the replay was deleted or disabled')
    if (replay.domainId === null) return refusedFor('a task of no domain has no channels')
    const path = { domain: replay.domainId, channel: replay.channelId }
    const access = await gate.authorize({ kind: 'user', principal }, path, 'subscribe')
    const { messages: stored } = await messages.read(access, {
      offset: replay.nextOffset,
      limit: PAGE,
      format: 'messages',
      from: replay.fromTime,
      to: replay.toTime,
      dir: 'asc',
    })
    return stepOf(replay, stored)
  }

  return startReplayReader({
    database,
    bus,
    intervalMs,
    async read(replay) {
      try {
        return await readPage(replay)
      } catch (error) {
        if (!(error instanceof ServiceError) || error.kind === 'unavailable' || error.kind === 'timeout') throw error
        const { domainId, channelId } = replay
        const fault = domainId === null ? undefined : await whyUnusable(database.db, domainId, channelId)
        return refusedFor(fault ?? error.message)
      }
    },
    async onRefused(tx, { id, taskKey }, reason) {
      logger.warn({ replay: id, reason }, 'ended a replay: its channel can no longer be read')
      await recordInJournal(tx, [{ taskKey, source: 'replay', reason: `the replay ended early: ${reason}`, count: 1 }])
    },
    onError: (error) => logger.warn({ err: error }, 'failed to resume a replay; retrying'),
  })
}

function stepOf(replay: OpenReplay, stored: readonly StoredMessage[]): ReplayStep {
  const messages: NewMessage[] = []
  let { fromTime, nextOffset } = replay
  for (const one of stored) {
    const time = one.time ?? 0
    if (time !== fromTime) nextOffset = 0
    fromTime = time
    messages.push({ origin: `replay ${replay.id} ${time} ${nextOffset}`, message: toMessage(one, replay.channelId) })
    nextOffset += 1
  }
  return { messages, next: stored.length < PAGE ? undefined : { fromTime, nextOffset } }
}

/** Converts a stored record to SenML field names. */
function toMessage(stored: StoredMessage, channelId: string): TriggerMessage {
  const record = {
    n: stored.name ?? '',
    ...(stored.unit === undefined ? {} : { u: stored.unit }),
    t: stored.time ?? 0,
    ...(stored.value === undefined ? {} : { v: stored.value }),
    ...(stored.string_value === undefined ? {} : { vs: stored.string_value }),
    ...(stored.bool_value === undefined ? {} : { vb: stored.bool_value }),
    ...(stored.data_value === undefined ? {} : { vd: stored.data_value }),
    ...(stored.sum === undefined ? {} : { s: stored.sum }),
  }
  const { subtopic = '', publisher, protocol } = stored
  return { channel_id: channelId, subtopic, publisher, protocol, records: [record] }
}
