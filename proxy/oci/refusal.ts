/** The error for invalid content: a reference was found, but its content is not a module that a worker can run. */
import { ServiceError } from '#core/errors/index.ts'

/**
 * A manifest, layer or archive that violates a rule of section 6 of the task manager. A retry gives the same result (a
 * run ends with `module_invalid`), unlike an unavailable registry, which is `unavailable` or `timeout`.
 */
export function moduleInvalid(message: string, context?: Record<string, unknown>): ServiceError {
  return new ServiceError('malformed', message, context === undefined ? {} : { context })
}
