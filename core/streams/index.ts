import { createStreamBudget } from './budget.ts'
import type { StreamBudget } from './budget.ts'
import { StreamLimits } from './limits.ts'
import type { StreamConfig } from './settings.ts'

export { markCountedByWriter, createStreamBudget, isCountedByWriter } from './budget.ts'
export type { BudgetEntry, StreamReader, StreamBudget } from './budget.ts'
export { STREAM_METRICS } from './metrics.ts'
export { StreamLimits } from './limits.ts'
export type { StreamOwner } from './limits.ts'
export { MIN_BYTES_PER_SECOND, atMinimumRate } from './minimum-rate.ts'
export { PING_MS, pingPeriodically } from './pings.ts'
export { STREAM_SETTINGS } from './settings.ts'
export type { StreamConfig } from './settings.ts'
export type { FrameEndpoint, FrameRequest, FrameSession, FrameSocket } from './frame-socket.ts'
export { startAccessWatch } from './watch.ts'
export type { AccessWatch, Watched } from './watch.ts'

/** Budget and limits shared by all streams of this process. */
export type Streams = { readonly budget: StreamBudget; readonly limits: StreamLimits }

export function createStreams(config: StreamConfig): Streams {
  return {
    budget: createStreamBudget(config.streamBytes),
    limits: new StreamLimits({
      client: config.streamsPerClient,
      user: config.streamsPerUser,
      domain: config.streamsPerDomain,
    }),
  }
}
