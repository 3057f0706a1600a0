/** The user that a task acts as, and the domain whose channels it can use (task-manager.md section 5). */
import type { UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { TaskAccess } from '../access/access.ts'
import { pauseFor } from '../store/pauses.ts'

/** The task is paused: what it would take waits. */
export class Paused extends Error {}

/** Throws `forbidden` for a task of no domain, and for a user who was deleted or disabled. */
export async function requireActingUser(
  access: Pick<TaskAccess, 'findUser'>,
  { userKey, domainId }: { userKey: number | null | undefined; domainId: string | null },
): Promise<{ user: UserPrincipal; domainId: string }> {
  if (domainId === null) throw new ServiceError('forbidden', 'a task of no domain has no channels')
  const user = userKey === null || userKey === undefined ? undefined : await access.findUser(userKey)
  if (user === undefined) throw new ServiceError('forbidden', 'the user of the task was deleted or disabled')
  return { user, domainId }
}

/** The grantor of the task has lost a right: throws `Paused`, or `unavailable` if the task has another grantor by now. */
export async function pauseForLack(
  database: Database,
  { taskKey, userKey }: { taskKey: number; userKey: number | null },
  { message: reason }: ServiceError,
): Promise<never> {
  if (await pauseFor(database, { taskKey, grantorKey: userKey, reason })) throw new Paused()
  throw new ServiceError('unavailable', reason)
}
