/** Verifies the password of a login. All logins pass through it, so the throttle applies to every one. */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Origin } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import { verifyAgainstDecoy, verifyPassword } from '../passwords/index.ts'
import type { LoginThrottle } from '../throttle/index.ts'
import { isKnownAddress, networkOf } from '../throttle/index.ts'
import { hashToken } from './token-hash.ts'

/** The attributes of a user that a login requires. */
export type LoginUser = {
  key: number
  id: string
  secretHash: string
  role: 'user' | 'admin'
  status: 'enabled' | 'disabled' | 'deleted'
}

/** The message is the same for an unknown name, a wrong password and a disabled user. */
export const WRONG_LOGIN = 'failed to perform authentication: wrong identity or secret'

/** Returns the user with this name and password. Throws `unauthenticated`, `rate_limited`. */
export type PasswordCheck = (login: string, password: string, origin: Origin) => Promise<LoginUser>

export function createPasswordCheck({
  database,
  journal,
  findLogin,
  throttle,
}: {
  database: Database
  journal: Journal
  findLogin: (login: string) => Promise<LoginUser | undefined>
  throttle: LoginThrottle
}): PasswordCheck {
  return async (login, password, origin) => {
    const address = networkOf(origin.address)
    const user = await findLogin(login)
    const isKnown = user !== undefined && (await isKnownAddress(database.db, user.key, address))
    // Unknown names are limited like known ones, so that the throttle does not reveal them. They are hashed because
    // they can be long.
    const account = user?.id ?? hashToken(login.toLowerCase()).toString('base64url')
    const admission = await throttle.admit({ account, address, isKnown })
    let isRight: boolean
    try {
      isRight =
        user === undefined
          ? await verifyAgainstDecoy(password)
          : await verifyPassword(password, user.secretHash, { isPreferred: isKnown })
    } catch (error) {
      admission.release()
      throw error
    }
    if (user !== undefined && isRight && user.status === 'enabled') {
      admission.release()
      return user
    }
    admission.fail()
    if (user !== undefined) {
      await journal.change('system', async (_tx, record) => {
        record({
          operation: 'user.refused_token',
          entityKeys: [user.key],
          attributes: { id: user.id, address: origin.address },
        })
      })
    }
    throw new ServiceError('unauthenticated', WRONG_LOGIN)
  }
}
