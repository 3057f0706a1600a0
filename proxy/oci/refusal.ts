/** The refusal of content: what a reference names was found, and is no module that a worker could run. */
import { ServiceError } from '#core/errors/index.ts'

/**
 * A manifest, layer or archive that breaks a rule of section 6 of the task manager. Asking again gives the same answer
 * (a run ends with `module_invalid`), unlike a registry that is away, which is `unavailable` or `timeout`.
 */
export function moduleInvalid(message: string, context?: Record<string, unknown>): ServiceError {
  return new ServiceError('malformed', message, context === undefined ? {} : { context })
}
