/** Errors about one field of a body, a query or a setting. */
import { ServiceError } from './service-error.ts'

/** The name of a field in a message: `/credentials/secret` of a body becomes `credentials.secret`; `limit` of a query is unchanged. */
export function fieldName(path: string): string {
  return path.replace(/^\//, '').replaceAll('/', '.')
}

/** The error for the field at `path`; `message` says what is accepted: `must be …`, `is required`. */
export function refusedField(path: string, message: string): ServiceError {
  return new ServiceError('malformed', `${fieldName(path)} ${message}`, { details: [{ path, message }] })
}
