/** Bounds of runs, each in one place. */

/** Wall-clock time of a run unless the task says otherwise. */
export const DEFAULT_TIMEOUT_MS = 300_000
/** Nothing runs longer than a week. */
export const MAX_TIMEOUT_MS = 7 * 24 * 3_600_000
/** Pause before the second attempt unless the task says otherwise; it doubles with each further one. */
export const BACKOFF_DEFAULT_MS = 1_000
export const BACKOFF_MAX_MS = 100_000
/** Linear memory of a run unless the task says otherwise. */
export const DEFAULT_MEMORY_LIMIT_BYTES = 64 * 1024 * 1024
/** 4 GiB: what 32-bit memories can reach. */
export const MAX_MEMORY_LIMIT_BYTES = 4 * 1024 * 1024 * 1024
/** Bound of stdout and of stderr of one run, each, unless the task says otherwise, and what the task may say. */
export const DEFAULT_OUTPUT_BYTES = 1024 * 1024
export const MIN_OUTPUT_BYTES = 1024
export const MAX_OUTPUT_BYTES = 16 * 1024 * 1024
/** A result up to this size travels and is stored in one piece. */
export const MAX_INLINE_RESULT_BYTES = 256 * 1024
/** Largest result; above 256 KiB it is staged in parts. */
export const MAX_STAGED_RESULT_BYTES = 16 * 1024 * 1024
/** Parts of results, logs and modules on the wire. */
export const MAX_CHUNK_BYTES = 256 * 1024
/** One message of a session; grpc-js refuses larger ones. */
export const MAX_MESSAGE_BYTES = 4 * 1024 * 1024
/** Runs that wait for a worker; beyond it a start is refused with `unavailable`. */
export const MAX_QUEUED_RUNS = 20_000
/** Inputs, arguments, environment and message of one run, in characters of JSON. UTF-8 has up to three bytes for one. */
export const MAX_SPEC_CHARS = 4 * 1024 * 1024
/** The same of all runs that are started in one batch: they are one statement. */
export const MAX_BATCH_SPEC_CHARS = 64 * 1024 * 1024
/** Runs claimed for free slots in one batch. */
export const MAX_CLAIMED_PER_BATCH = 500
/** Rows that one look at passed deadlines takes. */
export const MAX_DUE_PER_SWEEP = 500
