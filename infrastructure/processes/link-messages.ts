/** The requests and notifications of supervisor and processes on their link. */
import type { NamedBucket } from '#core/limits/index.ts'

/** Requests of a process to its supervisor. */
export const ASSIGNMENT = 'assignment'
export const TAKE_TOKENS = 'take tokens'
/** Requests in both directions: to the supervisor about all processes, to a process about itself. */
export const READINESS = 'readiness'
export const METRICS = 'metrics'

/** Notifications of a process to its supervisor. */
export const SERVING = 'serving'
export const REFUND_TOKENS = 'refund tokens'

export type Buckets = readonly NamedBucket[]

/** The deadline for a report that the process has in memory. */
export const READINESS_DEADLINE_MS = 1000
/** The deadline for the metrics of one process. The supervisor collects all of them within the deadline of its caller. */
export const METRICS_DEADLINE_MS = 2000
