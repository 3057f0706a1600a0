/** The protocol of manager, worker and proxy. `npm run generate:proto` writes `gen/`; do not edit it. */
export * from './gen/cluster/v1/run_pb.ts'
export * from './gen/cluster/v1/worker_pb.ts'
export { TaskState as WireTaskState } from './gen/cluster/v1/run_pb.ts'
export { TASK_STATE, taskStateFromWire, taskStateToWire } from './task-state.ts'
export type { TaskState, TaskStateName } from './task-state.ts'
export {
  dialOverTls,
  dialPinned,
  dialWithoutTls,
  fingerprintOf,
  hostOf,
  isLoopback,
  portOf,
  reachableFrom,
  serverName,
} from './dial.ts'
export type { ClientPair, Dialling, DirectTls } from './dial.ts'
export { UPLOAD_TAG, formatPullPath, parsePullPath, repositoryNameOf } from './distribution.ts'
export type { PullPath } from './distribution.ts'
export { createServiceClient, largeResponse, serviceDefinition, sessionRequests } from './grpc.ts'
export { idOfTick } from './offline-runs.ts'
export { UnreadableMessage } from './large-messages.ts'
export type {
  GeneratedService,
  ServerDuplexStream,
  ServerUnaryCall,
  ServiceClient,
  ServiceHandlers,
  StreamCallOptions,
  UnaryCallOptions,
} from './grpc.ts'
export { createTicketSigner, createTicketVerifier, isSameToken } from './tickets.ts'
export type { TicketGrant, TicketSigner, TicketVerifier } from './tickets.ts'
