/** Reads of stored messages for guests. They need no queue: the manager checks the grant, the platform has the reader. */

export type ReadableChannel = { domainKey: number; domainId: string; channelKey: number; channelId: string }

export type RecordQuery = {
  subtopic?: string
  name?: string
  /** Seconds since 1970. */
  from?: number
  to?: number
  limit: number
}

/** A resolved record by the names of SenML (RFC 8428 section 4), as triggers give them too, and where it came from. */
export type StoredRecord = {
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

/** The newest records first. Checks no right: the caller has. */
export type ReadChannel = (channel: ReadableChannel, query: RecordQuery) => Promise<StoredRecord[]>
