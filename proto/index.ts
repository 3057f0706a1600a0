/** The contract between manager, worker and proxy. `gen/` is written by `npm run generate:proto`, never by hand. */
export * from './gen/cluster/v1/run_pb.ts'
export * from './gen/cluster/v1/worker_pb.ts'
export * from './gen/cluster/v1/module_pb.ts'
export { TaskState as WireTaskState } from './gen/cluster/v1/run_pb.ts'
export { TASK_STATE, taskStateFromWire, taskStateToWire } from './task-state.ts'
export type { TaskState, TaskStateName } from './task-state.ts'
export { CallError, readByteStream } from './byte-stream.ts'
export {
  dialOverTls,
  dialPinned,
  dialPlainly,
  fingerprintOf,
  hostOf,
  isLoopback,
  portOf,
  reachableFrom,
  serverName,
} from './dial.ts'
export type { ClientPair, Dialling } from './dial.ts'
export { createServiceClient, serviceDefinition, sessionRequests } from './grpc.ts'
export type {
  GeneratedService,
  ServerDuplexStream,
  ServerUnaryCall,
  ServerWritableStream,
  ServiceClient,
  ServiceHandlers,
  StreamCallOptions,
  UnaryCallOptions,
} from './grpc.ts'
export { createChunkBuffer, sendChunk } from './send-chunk.ts'
export type { ChunkBuffer } from './send-chunk.ts'
export { createTicketSigner, createTicketVerifier, isSameToken } from './tickets.ts'
export type { TicketGrant, TicketSigner, TicketVerifier } from './tickets.ts'
