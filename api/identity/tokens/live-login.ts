/**
 * Requests that create long-lived credentials check again, under the lock of the user, that their login has not ended.
 */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { UserPrincipal } from '../access/index.ts'
import { isLiveLogin } from './repository.ts'

/** Locks the user until the transaction ends. Throws `unauthenticated` when the login has ended meanwhile. */
export async function requireLiveLogin(tx: Transaction, caller: UserPrincipal): Promise<void> {
  if (await isLiveLogin(tx, caller.key, caller.sessionId)) return
  throw new ServiceError('unauthenticated', 'failed to perform authentication: the session has ended')
}
