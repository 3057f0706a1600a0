/** Maps any thrown value to a gRPC status; the message of an error that is not a ServiceError is not sent. */
import { status } from '@grpc/grpc-js'
import { PROTOCOL_STATUS, ServiceError } from '#core/errors/index.ts'
import { translateDatabaseError } from '#core/database/index.ts'
import { UnreadableMessage } from '#proto/index.ts'

export function grpcFailure(thrown: unknown): { code: status; details: string } {
  if (thrown instanceof UnreadableMessage) return { code: PROTOCOL_STATUS.malformed.grpc, details: thrown.message }
  const error = translateDatabaseError(thrown)
  if (!(error instanceof ServiceError)) return { code: status.INTERNAL, details: 'internal error' }
  // A void session epoch requires a new registration, as ABORTED requires a client to restart its sequence.
  if (error.kind === 'conflict') return { code: status.ABORTED, details: error.message }
  return { code: PROTOCOL_STATUS[error.kind].grpc, details: error.message }
}
