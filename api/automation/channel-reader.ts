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

export type ChannelReader = (channel: ReadChannel, query: ChannelQuery) => Promise<StoredMessage[]>

/** The newest records first. */
export function createChannelReader(database: Database): ChannelReader {
  const reader = createReader(database)
  return async (channel, query) => {
    const access = { ...channel, publisherKey: null, publisherId: null, retentionDays: null }
    const page = await reader.read(access, { offset: 0, format: 'messages', ...query })
    return page.messages
  }
}
