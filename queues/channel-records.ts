/** Reads stored messages for guests. No queue is needed: the manager checks the grant, the platform provides the reader. */

export type ReadableChannel = { domainKey: number; domainId: string; channelKey: number; channelId: string }

export type RecordQuery = {
  subtopic?: string
  name?: string
  /** Seconds since 1970. */
  from?: number
  to?: number
  limit: number
}

/** A resolved record with SenML names (RFC 8428 section 4), as in triggers, and its origin. */
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

/** The newest records first. The caller must have checked the right. */
export type ReadChannel = (channel: ReadableChannel, query: RecordQuery) => Promise<StoredRecord[]>
