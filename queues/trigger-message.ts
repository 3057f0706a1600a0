/** A message for triggers and guests. */

/** A resolved record with the field names of SenML (RFC 8428 section 4). */
export type SenmlRecord = {
  n: string
  u?: string
  t: number
  v?: number
  vs?: string
  vb?: boolean
  vd?: string
  s?: number
  ut?: number
}

/** The message is stored with the run and passed to the guest unchanged. */
export type TriggerMessage = {
  channel_id: string
  subtopic: string
  publisher: string
  protocol: string
  records: SenmlRecord[]
}

/** A message without its records. */
export type MessageHeader = Omit<TriggerMessage, 'records'>

/** What a run gets: a message, or with `batch` a list. */
export type GivenMessages = TriggerMessage | readonly TriggerMessage[]
