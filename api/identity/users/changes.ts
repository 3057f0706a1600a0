/**
 * Changes one user: reads under a lock, writes, and records the old and new values in the journal (contract section
 * 10).
 */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { formatTime } from '#core/time.ts'
import type { UserPrincipal } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import type { UserChange, UserRecord } from './repository.ts'
import { lockUser, updateUser } from './repository.ts'
import { NOT_FOUND } from './rules.ts'

/** Names of the fields in the journal. Fields that are missing here are never recorded. */
const FACT_NAMES = {
  firstName: 'first_name',
  lastName: 'last_name',
  name: 'name',
  tags: 'tags',
  metadata: 'metadata',
  profilePicture: 'profile_picture',
  email: 'email',
  username: 'username',
  role: 'role',
  status: 'status',
} as const satisfies Partial<Record<keyof UserChange, string>>

type FactName = keyof typeof FACT_NAMES

const isFact = (name: string): name is FactName => name in FACT_NAMES

function factsOf(user: UserRecord, change: UserChange): Record<string, unknown> {
  return Object.fromEntries(
    Object.keys(change)
      .filter(isFact)
      .map((name) => [FACT_NAMES[name], user[name]]),
  )
}

/** Returns the attributes of a new user for the journal: the record without its secret. */
export function newUserFacts(user: UserRecord): Record<string, unknown> {
  const facts = Object.entries(FACT_NAMES).map(([name, fact]) => [fact, user[name as FactName]])
  return {
    id: user.id,
    ...Object.fromEntries(facts.filter(([, value]) => value !== null)),
    ...(user.createdBy === null ? {} : { created_by: user.createdBy }),
    created_at: formatTime(user.createdAt),
  }
}

/** The decision of a rule: the fields to write, and further entities whose cache entries become stale. */
export type Decision = {
  change: UserChange
  alsoChanged?: readonly number[]
  attributes?: Readonly<Record<string, unknown>>
}

export type ChangeDeps = { journal: Journal; uniqueNames: boolean }

/**
 * Runs the rule under the lock of the user and writes its decision. When the decision is undefined, nothing is written
 * and the current user is returned. `before` runs first, for locks that must be taken before users. Throws `not_found`
 * for a user who was deleted meanwhile.
 */
export async function changeUser<T = undefined>(
  { journal, uniqueNames }: ChangeDeps,
  caller: UserPrincipal | 'system',
  id: string,
  operation: string,
  decide: (tx: Transaction, user: UserRecord, prepared: T) => Decision | undefined | Promise<Decision | undefined>,
  before?: (tx: Transaction) => Promise<T>,
): Promise<UserRecord> {
  return await journal.change(caller, async (tx, record) => {
    const prepared = (await before?.(tx)) as T
    const user = await lockUser(tx, id)
    if (user === undefined) throw new ServiceError('not_found', NOT_FOUND)
    const decision = await decide(tx, user, prepared)
    if (decision === undefined) return user
    const { change, alsoChanged = [], attributes = {} } = decision
    const updated = await updateUser(tx, user.key, change, caller === 'system' ? user.id : caller.id, uniqueNames)
    record({
      operation,
      entityKeys: [...new Set([user.key, ...alsoChanged])],
      attributes: { id, before: factsOf(user, change), after: factsOf(updated, change), ...attributes },
    })
    return updated
  })
}
