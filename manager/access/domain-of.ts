/** The domain of a new entity of a user. */
import type { UserPrincipal } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { TaskAccess, TaskAction, TaskDomain } from './access.ts'

/**
 * The given domain, else none for the platform administrator, else the only domain in which the user is allowed the
 * action. Throws `forbidden` if there is none, `malformed` with the text `several` if there are several.
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
