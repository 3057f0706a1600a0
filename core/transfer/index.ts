/** Large bodies over HTTP, both ends: requests with deadlines, ranges, and answers that are read as they are taken. */
export { TransferClient, discard, errorCodeOf } from './client.ts'
export type { Answer, Dial, Method, RequestBody, TransferLimits } from './client.ts'
export { bodyFrom, rangeFrom } from './ranges.ts'
export { readRefusal, refuseTransfer } from './refusals.ts'
export { retryAfterMs } from './retry-after.ts'
export { sendBytes } from './send.ts'
export type { SendLimits, SentBytes } from './send.ts'
