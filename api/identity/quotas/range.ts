/** The largest quota: every whole number up to it is exact in JSON. */
export const MAX_QUOTA = Number.MAX_SAFE_INTEGER
/** The largest rate per second; no process takes in more. */
export const MAX_RATE = 1_000_000_000
