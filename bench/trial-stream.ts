/** The stream between manager and worker of the trial: JSON in a gRPC stream, many runs in a message. */
import type { MethodDefinition } from '@grpc/grpc-js'

export type TrialOrder = { key: number; inputs: [number, number] }
export type TrialEnd = { key: number; results: unknown[] }

export const STREAM: MethodDefinition<TrialEnd[], TrialOrder[]> = {
  path: '/trial/session',
  requestStream: true,
  responseStream: true,
  requestSerialize: (ends) => Buffer.from(JSON.stringify(ends)),
  requestDeserialize: (bytes) => JSON.parse(bytes.toString()) as TrialEnd[],
  responseSerialize: (orders) => Buffer.from(JSON.stringify(orders)),
  responseDeserialize: (bytes) => JSON.parse(bytes.toString()) as TrialOrder[],
}
