/** Any thrown value as the status of a gRPC call; what is not a ServiceError stays inside. */
import { status } from '@grpc/grpc-js'
import { PROTOCOL_STATUS, ServiceError } from '#core/errors/index.ts'
import { translateDatabaseError } from '#core/database/index.ts'
import { UnreadableMessage } from '#proto/index.ts'

export function grpcFailure(thrown: unknown): { code: status; details: string } {
  if (thrown instanceof UnreadableMessage) return { code: PROTOCOL_STATUS.malformed.grpc, details: thrown.message }
  const error = translateDatabaseError(thrown)
  if (!(error instanceof ServiceError)) return { code: status.INTERNAL, details: 'internal error' }
  // A void session epoch asks for a new registration, which is what ABORTED means to a client.
  if (error.kind === 'conflict') return { code: status.ABORTED, details: error.message }
  return { code: PROTOCOL_STATUS[error.kind].grpc, details: error.message }
}
