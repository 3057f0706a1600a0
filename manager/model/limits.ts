/** Limits of runs and of the sessions of workers. */

/** Default timeout of a run. */
export const DEFAULT_TIMEOUT_MS = 300_000
/** Largest timeout: a week. */
export const MAX_TIMEOUT_MS = 7 * 24 * 3_600_000
/** Default of how long a run waits for a worker that fits: a day. */
export const DEFAULT_QUEUE_TIMEOUT_MS = 24 * 3_600_000
/** Largest: 30 days. */
export const MAX_QUEUE_TIMEOUT_MS = 30 * 24 * 3_600_000
/** Default pause before the second attempt; it doubles with each further one. */
export const DEFAULT_BACKOFF_MS = 1_000
export const MAX_BACKOFF_MS = 100_000
/** Default linear memory of a run. */
export const DEFAULT_MEMORY_LIMIT_BYTES = 64 * 1024 * 1024
/** 4 GiB: the address space of 32-bit memories. */
export const MAX_MEMORY_LIMIT_BYTES = 4 * 1024 * 1024 * 1024
/** Default limit of stdout and of stderr of one run, each, and the range that a task can set. */
export const DEFAULT_OUTPUT_BYTES = 1024 * 1024
export const MIN_OUTPUT_BYTES = 1024
export const MAX_OUTPUT_BYTES = 16 * 1024 * 1024
/** A result up to this size is sent and stored in one piece. */
export const MAX_INLINE_RESULT_BYTES = 256 * 1024
/** Largest result; above 256 KiB it is staged in parts. */
export const MAX_RESULT_BYTES = 16 * 1024 * 1024
/** Parts of results, logs and modules on the wire. */
export const MAX_CHUNK_BYTES = 256 * 1024
/** One message of a session; grpc-js refuses larger ones. */
export const MAX_SESSION_MESSAGE_BYTES = 4 * 1024 * 1024
/** Runs in the queue; beyond it starts of domains that have used up their share of it are refused with `unavailable`. */
export const MAX_QUEUED_RUNS = 20_000
/** The smallest share of a domain in the queue, however many domains wait. */
export const MIN_QUEUE_SHARE = 100
/** Inputs, arguments, environment and standard input of one run, as JSON: as much as the body of a request. */
export const MAX_SPEC_BYTES = 1024 * 1024
/** The same limit for a run that no user started, in characters: resolved records repeat what a pack names once. */
export const MAX_UNREQUESTED_SPEC_CHARS = 4 * 1024 * 1024
/** The same limit for all runs of one batch, which are one statement. */
export const MAX_BATCH_SPEC_CHARS = 64 * 1024 * 1024
/** Runs claimed for free slots in one batch. */
export const MAX_CLAIMED_PER_BATCH = 500
/** Runs whose deadline has passed that one sweep ends. */
export const MAX_CHECKED_PER_SWEEP = 500

/** Where the HTTP requests of a task can go. */
export const MAX_HTTP_ORIGINS = 32
export const MAX_HTTP_ORIGIN_CHARS = 300
/** Limits of the HTTP requests of one run together; bytes of both directions. */
export const DEFAULT_HTTP_REQUESTS = 32
export const MAX_HTTP_REQUESTS = 1_000
export const DEFAULT_HTTP_BYTES = 4 * 1024 * 1024
export const MAX_HTTP_BYTES = 64 * 1024 * 1024
export const DEFAULT_HTTP_TIMEOUT_MS = 30_000
export const MAX_HTTP_TIMEOUT_MS = 600_000
