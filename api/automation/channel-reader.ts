/**
 * Reads stored messages for guests of a task manager. The task manager has already checked that the task may read the
 * channel.
 */
import type { Database } from '#core/database/index.ts'
import { createReader } from '#api/messages/index.ts'
import type { StoredMessage } from '#api/messages/index.ts'
import type { ReadChannel, StoredRecord } from '#queues/index.ts'

/** Returns records in descending order of time. */
export function createChannelReader(database: Database): ReadChannel {
  const reader = createReader(database)
  return async (channel, query) => {
    const access = { ...channel, publisherKey: null, publisherId: null, retentionDays: null }
    const page = await reader.read(access, { offset: 0, format: 'messages', ...query })
    return page.messages.map(toRecord)
  }
}

const SENML_NAMES = {
  name: 'n',
  unit: 'u',
  time: 't',
  update_time: 'ut',
  value: 'v',
  string_value: 'vs',
  bool_value: 'vb',
  data_value: 'vd',
  sum: 's',
} as const satisfies Partial<Record<keyof StoredMessage, keyof StoredRecord>>

export function toRecord(message: StoredMessage): StoredRecord {
  const { channel, subtopic, publisher, protocol } = message
  const fields = Object.entries(SENML_NAMES).flatMap(([stored, name]) => {
    const value = message[stored as keyof typeof SENML_NAMES]
    return value === undefined ? [] : [[name, value]]
  })
  return {
    channel,
    ...(subtopic === undefined ? {} : { subtopic }),
    publisher,
    protocol,
    ...(Object.fromEntries(fields) as Partial<StoredRecord>),
  }
}
