/** Errors about one field of a body, a query or a setting. A form shows them at the field that `details` name. */
import { ServiceError } from './service-error.ts'

/** The name of a field in a message: `/credentials/secret` of a body becomes `credentials.secret`; `limit` of a query is unchanged. */
export function fieldName(path: string): string {
  return path.replace(/^\//, '').replaceAll('/', '.')
}

/** The error for the field at `path`; `message` says what is accepted: `must be …`, `is required`. */
export function refusedField(path: string, message: string): ServiceError {
  return new ServiceError('malformed', `${fieldName(path)} ${message}`, { details: [{ path, message }] })
}

/** The error for a value that another entity has. `path` names it in the body, `message` is the sentence, `fault` its end after the name. */
export function takenField(path: string, message: string, fault = 'is already in use'): ServiceError {
  return new ServiceError('conflict', message, { details: [{ path, message: fault }] })
}
