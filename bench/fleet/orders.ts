/** What the bench asks of a process of simulated workers, and what it answers. */
import type { Wire } from './http2-frames.ts'

/** Workers of a process whose frames are counted. */
export const SAMPLED = 20
export type Order =
  | { do: 'join'; address: string; token: string; folder: string; count: number; name: string }
  | { do: 'report' }
  | { do: 'open' }
  | { do: 'calls' }

export type Report = { connected: number; wire: Wire; calls: number }
