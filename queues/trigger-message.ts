/** A message as triggers see it and guests get it. */

/** A resolved record as SenML names its fields (RFC 8428 section 4). */
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

/** Stored with the run and given to the guest as it is. */
export type TriggerMessage = {
  channel_id: string
  subtopic: string
  publisher: string
  protocol: string
  records: SenmlRecord[]
}
