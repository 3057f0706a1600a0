/** The header `Idempotency-Key` of requests that give commands: repeated with the same key, a request gives no second command. */
import { createHash } from 'node:crypto'
import type { UserPrincipal } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { NewCommand } from './schema.ts'

/** How long a key finds its command. */
export const IDEMPOTENCY_HOURS = 24
const MAX_KEY_CHARS = 255

export type Idempotency = { scope: Buffer; requestDigest: Buffer }

/** The key in the headers of a request. */
export function idempotencyKeyOf(headers: Readonly<Record<string, string | string[] | undefined>>): string | undefined {
  const key = headers['idempotency-key']
  if (Array.isArray(key)) throw new ServiceError('malformed', 'the header Idempotency-Key must be given once')
  return key
}

/** `more`: what belongs to the request besides the command. Undefined: without a key. */
export function idempotencyOf(
  caller: UserPrincipal,
  key: string | undefined,
  { name, payload, timeout, expires_at: expiresAt }: NewCommand,
  more: readonly unknown[] = [],
): Idempotency | undefined {
  if (key === undefined) return undefined
  if (key === '' || key.length > MAX_KEY_CHARS)
    throw new ServiceError('malformed', `the header Idempotency-Key must have 1 to ${MAX_KEY_CHARS} characters`)
  const request = [name, payload ?? null, payload === undefined, timeout ?? null, expiresAt ?? null, ...more]
  return {
    scope: createHash('sha256').update(`${caller.key}\0${key}`).digest(),
    requestDigest: createHash('sha256').update(JSON.stringify(request)).digest(),
  }
}

export const usedWithAnotherBody = (): ServiceError =>
  new ServiceError('unprocessable', 'this Idempotency-Key was used with another body')
