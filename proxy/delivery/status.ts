/** A refusal as it leaves over gRPC: the row of the error table, and the sentence for the caller. */
import { Metadata } from '@grpc/grpc-js'
import type { StatusObject } from '@grpc/grpc-js'
import { PROTOCOL_STATUS, kindOf, presentError } from '#core/errors/index.ts'

/** What is no ServiceError is a bug: the caller learns that it was one and nothing else. */
export function statusOf(error: unknown): StatusObject {
  return { code: PROTOCOL_STATUS[kindOf(error)].grpc, details: presentError(error).message, metadata: new Metadata() }
}
