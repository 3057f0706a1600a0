export { createRunnerPool } from './pool.ts'
export type { RunnerPoolOptions } from './pool-options.ts'
export type { RunnerPool, RunnerPoolStats } from './pool.ts'
export type { RunOutcome, RunRequest } from './run-request.ts'
export {
  MAX_HTTP_HEADER_BYTES,
  MAX_HTTP_RESPONSE_BYTES,
  isHttpMethod,
  isReservedHttpHeader,
  isStateCall,
  refusalOfHeaders,
  refuseCall,
} from '#guests/wasm/index.ts'
export type {
  ChannelCall,
  GuestCall,
  GuestReply,
  HttpAnswer,
  HttpCall,
  HttpHeaders,
  HttpMethod,
  StateBucket,
  StateCall,
  StateEntry,
  StateValues,
} from '#guests/wasm/index.ts'
export type { OutputName } from '#guests/calls/index.ts'
export { hasOutputInResults } from './output-once.ts'
export { stageRunnerCode } from './staged-code.ts'
