/** The invitee and the offer of an invitation, as the body of a request names them. */
import { refusedField } from '#core/errors/index.ts'
import type { NewInvitation } from './schema.ts'
import type { Invitee, Offer } from './service.ts'

/** Throws `malformed` unless the body names one of both. */
export function requireInvitee({ invitee_user_id: id, email }: NewInvitation): { invitee: Invitee } {
  if (id !== undefined && email !== undefined) throw refusedField('/email', 'cannot be combined with invitee_user_id')
  if (email !== undefined) return { invitee: { email } }
  if (id === undefined) throw refusedField('/invitee_user_id', 'is required')
  return { invitee: { id } }
}

/** Throws `malformed` unless the body names one of both. */
export function requireOffer({ role_id: roleId, relation }: NewInvitation): Offer {
  if (roleId !== undefined && relation !== undefined) throw refusedField('/relation', 'cannot be combined with role_id')
  if (relation !== undefined) return { relation }
  if (roleId === undefined) throw refusedField('/role_id', 'is required')
  return { roleId }
}
