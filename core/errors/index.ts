export { ERROR_KINDS, ServiceError, isRetryable, kindOf, presentError } from './service-error.ts'
export type { ErrorDetail, ErrorKind, ServiceErrorOptions } from './service-error.ts'
export { EXIT_FAILED, EXIT_WRONG_USAGE, PROTOCOL_STATUS } from './status.ts'
export type { ProtocolStatus } from './status.ts'
