/** Where something new of a user belongs. */
import type { UserPrincipal } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { TaskAccess, TaskAction, TaskDomain } from './access.ts'

/**
 * The domain named, else the platform for its administrator, else the only domain in which the user may do it. Throws
 * `forbidden` where there is none, `malformed` where there are several: `several` says so.
 */
export async function domainOf(
  access: TaskAccess,
  user: UserPrincipal,
  action: TaskAction,
  { domainId, several }: { domainId: string | null | undefined; several: string },
): Promise<TaskDomain | null> {
  if (typeof domainId === 'string' && domainId !== '') return await access.require(user, action, domainId)
  const domains = await access.domains(user, action)
  if (typeof domains === 'string') return null
  const [only, ...others] = domains
  if (only === undefined)
    throw new ServiceError('forbidden', `failed to perform authorization: needs ${action} in a domain`)
  if (others.length === 0) return only
  throw new ServiceError('malformed', `domain_id is required: ${several}`, {
    details: [{ path: '/domain_id', message: 'is required' }],
  })
}
