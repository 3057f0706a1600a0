/** The error of an invalid pack: `malformed`, with the record, the field and the rule. */
import { ServiceError } from '#core/errors/index.ts'

/**
 * `path` is a JSON pointer into the pack (`/3/v`); `rule` ends the sentence that starts with it. Only the first fault is reported:
 * later ones depend on base fields that may be wrong.
 */
export function refusal(path: string, rule: string): ServiceError {
  const where = path === '' ? 'the pack' : path
  return new ServiceError('malformed', `invalid SenML: ${where} ${rule}`, { details: [{ path, message: rule }] })
}
