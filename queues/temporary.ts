import type { ServiceError } from '#core/errors/index.ts'

/** Whether the same work may succeed later: its row then stays in the queue. */
export function isTemporary({ kind }: ServiceError): boolean {
  return kind === 'unavailable' || kind === 'timeout' || kind === 'internal'
}
