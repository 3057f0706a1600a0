/** Records a login whose password was checked. */
import { ServiceError } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { Origin } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import { networkOf, rememberAddress } from '../throttle/index.ts'
import { WRONG_LOGIN } from './password-check.ts'
import type { LoginUser } from './password-check.ts'
import { insertSession } from './repository.ts'

export type SessionTerms = {
  domainKey: number | undefined
  lifetimeSeconds: number
  /** SHA-256 of the cookie of a browser. */
  cookieHash?: Buffer
}

/** Returns the id of the session. Throws `unauthenticated` when the user was disabled or got another password meanwhile. */
export async function openSession(
  journal: Journal,
  user: LoginUser,
  { domainKey, lifetimeSeconds, cookieHash }: SessionTerms,
  origin: Origin,
): Promise<string> {
  const id = newId()
  await journal.change('system', async (tx, record) => {
    const isStored = await insertSession(tx, {
      id,
      userKey: user.key,
      secretHash: user.secretHash,
      domainKey,
      lifetimeSeconds,
      cookieHash,
      address: origin.address,
      userAgent: origin.userAgent,
    })
    if (!isStored) throw new ServiceError('unauthenticated', WRONG_LOGIN)
    await rememberAddress(tx, user.key, networkOf(origin.address))
    record({
      operation: 'user.issue_token',
      entityKeys: [user.key],
      attributes: { id: user.id, session: id, address: origin.address },
    })
  })
  return id
}
