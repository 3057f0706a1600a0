/** Refusals of one field of a body, a query or a setting. */
import { ServiceError } from './service-error.ts'

/** A path as a sentence begins with it: `/credentials/secret` of a body as `credentials.secret`, `limit` of a query as it is. */
export function fieldName(path: string): string {
  return path.replace(/^\//, '').replaceAll('/', '.')
}

/** The refusal of the field at `path`; `message` says what would be accepted: `must be …`, `is required`. */
export function refusedField(path: string, message: string): ServiceError {
  return new ServiceError('malformed', `${fieldName(path)} ${message}`, { details: [{ path, message }] })
}
