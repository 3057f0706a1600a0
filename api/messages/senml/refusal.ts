/** How a pack is refused: one `malformed` error that names the record, the field and the rule. */
import { ServiceError } from '#core/errors/index.ts'

/**
 * A refused pack. `path` is a JSON pointer into the pack (`/3/v`), `rule` ends the sentence that starts with it.
 * Only the first fault is named: what follows it depends on base fields that can no longer be trusted.
 */
export function refusal(path: string, rule: string): ServiceError {
  const where = path === '' ? 'the pack' : path
  return new ServiceError('malformed', `invalid SenML: ${where} ${rule}`, { details: [{ path, message: rule }] })
}
