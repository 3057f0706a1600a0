import type { ServiceError } from '#core/errors/index.ts'

/** Whether a retry may succeed: then the row stays in the queue. */
export function isTemporary({ kind }: ServiceError): boolean {
  return kind === 'unavailable' || kind === 'timeout' || kind === 'internal'
}
