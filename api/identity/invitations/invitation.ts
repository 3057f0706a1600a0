/** Functions that sending and answering an invitation share. */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { RoleEntity, RoleRecord } from '../roles/index.ts'
import { ensureRelationRole, findAdminRole, findRole, parseRelation } from '../roles/index.ts'
import type { InvitationFacts, InvitationRecord } from './repository.ts'

/** Lifetime of an invitation (contract 1.3). */
export const INVITATION_LIFETIME_HOURS = 168

/** Returns the current role of the invitation. The role of a relation is created when it is missing. */
export async function findOffered(
  tx: Transaction,
  entity: RoleEntity,
  { relation, roleId }: Pick<InvitationFacts, 'relation' | 'roleId'>,
  createdBy: string,
): Promise<RoleRecord | undefined> {
  if (relation !== null) return await ensureRelationRole(tx, entity, parseRelation(relation), createdBy)
  if (roleId === undefined) return undefined
  const admin = await findAdminRole(tx, entity)
  return roleId === admin.id ? admin : await findRole(tx, entity.key, roleId)
}

/** Throws `malformed`. */
export function requireId(id: string, path: string): void {
  if (!isId(id)) throw refusedField(path, 'must be a UUID in lower case')
}

/** Throws `invalid_state`. */
export function requireUnanswered({ confirmedAt, rejectedAt }: InvitationFacts): void {
  const answer = confirmedAt !== null ? 'accepted' : rejectedAt !== null ? 'rejected' : undefined
  if (answer !== undefined) throw new ServiceError('invalid_state', `the invitation was already ${answer}`)
}

/** Attributes of the journal entry. */
export const factsOf = ({ domainId, userId, invitedBy, relation, role }: InvitationRecord) => ({
  domain_id: domainId,
  invitee_user_id: userId,
  invited_by: invitedBy,
  ...(relation === null ? {} : { relation }),
  ...(role === undefined ? {} : { role_id: role.id, role_name: role.name }),
})
