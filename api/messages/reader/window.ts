/** Which part of what matches is read, and what is read of it. */
import type { Direction } from './order.ts'

export type Window = { offset: number; limit: number; order: string | undefined; dir: Direction }

export type RecordRow = {
  subtopic: string
  publisher_id: string
  name: string
  unit: string
  protocol: number
  time: number
  value: number | null
  sum: number | null
  update_time: number | null
  bool_value: boolean | null
  string_value: string | null
  data_value: Buffer | null
}

export type Rows<Row> = { rows: Row[]; total: number }
