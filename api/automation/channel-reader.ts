/** Stored messages for guests of a task manager, which has checked that the task may read the channel. */
import type { Database } from '#core/database/index.ts'
import { createReader } from '#api/messages/index.ts'
import type { StoredMessage } from '#api/messages/index.ts'

export type ReadChannel = { domainKey: number; domainId: string; channelKey: number; channelId: string }

export type ChannelQuery = {
  subtopic?: string
  name?: string
  from?: number
  to?: number
  limit: number
}

/** A resolved record by the names of SenML (RFC 8428 section 4), as triggers give them too, and where it came from. */
export type ChannelRecord = {
  channel: string
  subtopic?: string
  publisher: string
  protocol: string
  n?: string
  u?: string
  t?: number
  ut?: number
  v?: number
  vs?: string
  vb?: boolean
  vd?: string
  s?: number
}

export type ChannelReader = (channel: ReadChannel, query: ChannelQuery) => Promise<ChannelRecord[]>

/** The newest records first. */
export function createChannelReader(database: Database): ChannelReader {
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
} as const satisfies Partial<Record<keyof StoredMessage, keyof ChannelRecord>>

export function toRecord(message: StoredMessage): ChannelRecord {
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
    ...(Object.fromEntries(fields) as Partial<ChannelRecord>),
  }
}
