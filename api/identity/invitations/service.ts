/** The rules of invitations, the same for both generations of their paths (contract 1.3, decision 24); the answers: `answers.ts`. */
import type { Database } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import type { AccessPolicy, DomainAccess, UserPrincipal } from '../access/index.ts'
import { listHeldRoles, lockDomain } from '../domains/index.ts'
import type { Journal } from '../journal/index.ts'
import { heldBy, parseRelation, requireMayGive, roleEntityOf } from '../roles/index.ts'
import { findUser } from '../users/index.ts'
import { createAnswers } from './answers.ts'
import type { Answers } from './answers.ts'
import { factsOf, findOffered, requireId, requireUnanswered } from './invitation.ts'
import type { InvitationFacts, InvitationFilter, InvitationRecord, InvitationScope } from './repository.ts'
import { deleteInvitation, findInvitation, listInvitations, lockInvitation, saveInvitation } from './repository.ts'
import type { DomainInvitationQuery, InvitationQuery } from './schema.ts'

/** How long an invitation can be accepted (contract 1.3). */
export const INVITATION_LIFETIME_HOURS = 168

/** What is offered: a role of the domain, or a relation of the older generations in any case. */
export type Offer = { roleId: string } | { relation: string }

export type InvitationsService = Answers & {
  /**
   * By an administrator of the domain. An invitation that is open, rejected or accepted is a `conflict`, unless `isResent`
   * renews it; one that has expired, or whose member has left the domain since, is made anew. Throws `malformed`,
   * `forbidden`, and `unprocessable` for a user or role that does not exist.
   */
  send(
    caller: UserPrincipal,
    domainId: string,
    invitation: { inviteeId: string; offer: Offer; isResent: boolean },
  ): Promise<void>
  /**
   * Received by the caller; with `domain_id` all of a domain that he administers; with `invited_by` himself, or with another
   * invitee, those that he sent. The platform administrator sees any that he filters for.
   */
  list(caller: UserPrincipal, query: InvitationQuery): Promise<Page<InvitationRecord>>
  /** Every invitation to the domain, for its administrators. Throws `forbidden`. */
  listOfDomain(caller: UserPrincipal, domainId: string, query: DomainInvitationQuery): Promise<Page<InvitationRecord>>
  /** To the invitee, the inviter and the domain's administrators. Throws `forbidden` or `not_found`. */
  get(caller: UserPrincipal, domainId: string, inviteeId: string): Promise<InvitationRecord>
  /**
   * The invitee at any time; the inviter and the domain's administrators too, with `onlyPending` not after it was answered:
   * `invalid_state`. Throws `forbidden` or `not_found`.
   */
  remove(caller: UserPrincipal, domainId: string, inviteeId: string, options: { onlyPending: boolean }): Promise<void>
}

function requireAdmin(domain: DomainAccess): void {
  if (!domain.isAdmin)
    throw new ServiceError(
      'forbidden',
      'failed to perform authorization: only an administrator of the domain handles its invitations',
    )
}

export function createInvitationsService({
  database,
  journal,
  access,
}: {
  database: Database
  journal: Journal
  access: AccessPolicy
}): InvitationsService {
  const { db } = database

  /** Throws `conflict` for what stands in the way; true when a former invitation is sent again. */
  function requireRenewable(known: InvitationFacts, isMember: boolean, isResent: boolean): boolean {
    if (known.confirmedAt !== null) {
      // He accepted and has left since: this is a new invitation.
      if (!isMember) return false
      throw new ServiceError('conflict', 'the user has accepted an invitation to the domain already')
    }
    if (isResent) return true
    if (known.rejectedAt === null && known.isExpired) return false
    throw new ServiceError('conflict', 'the user is invited to the domain already: set resend to send it again')
  }

  async function page(
    filter: InvitationFilter,
    { offset, limit }: { offset: number; limit: number },
  ): Promise<Page<InvitationRecord>> {
    const ids = [filter.domainId, filter.inviteeId, filter.invitedBy]
    if (ids.some((id) => id !== undefined && !isId(id))) return { total: 0, offset, limit, items: [] }
    return { offset, limit, ...(await listInvitations(db, filter, { offset, limit })) }
  }

  /** The invitation, for whoever has to do with it. */
  async function requireSeen(caller: UserPrincipal, domainId: string, inviteeId: string): Promise<InvitationRecord> {
    const isInvitee = inviteeId === caller.id
    const domain = isInvitee ? undefined : await access.enter(caller, domainId)
    const areIds = isId(domainId) && isId(inviteeId)
    const invitation = areIds ? await findInvitation(db, domainId, inviteeId) : undefined
    const isInviter = invitation?.invitedBy === caller.id
    if (domain !== undefined && !isInviter) requireAdmin(domain)
    if (invitation === undefined) throw new ServiceError('not_found', 'there is no such invitation')
    if (isInvitee && caller.boundDomainKey !== undefined && caller.boundDomainKey !== invitation.domainKey)
      throw new ServiceError('not_found', 'there is no such invitation')
    return invitation
  }

  return {
    ...createAnswers({ database, journal }),
    async send(caller, domainId, { inviteeId, offer, isResent }) {
      requireId(inviteeId, 'relation' in offer ? '/user_id' : '/invitee_user_id')
      const relation = 'relation' in offer ? parseRelation(offer.relation) : null
      const domain = await access.enter(caller, domainId)
      domain.require('add_role_users')
      requireAdmin(domain)
      const holds = await heldBy(domain)
      const entity = roleEntityOf(domain)
      await journal.change(caller, async (tx, record) => {
        await lockDomain(tx, entity.key)
        const invitee = await findUser(tx, inviteeId)
        if (invitee?.status !== 'enabled')
          throw new ServiceError('unprocessable', `failed to invite: there is no user ${inviteeId}`)
        const roleId = 'roleId' in offer ? offer.roleId : undefined
        const role = await findOffered(tx, entity, { relation, roleId }, caller.id)
        if (role === undefined)
          throw new ServiceError('unprocessable', `failed to invite: there is no role ${roleId} in the domain`)
        requireMayGive(holds, role.actions)
        const held = await listHeldRoles(tx, invitee.key, entity.key)
        if (held.some((one) => one.id === role.id))
          throw new ServiceError('conflict', `the user has the role ${role.name} in the domain already`)
        const known = await lockInvitation(tx, entity.key, invitee.key)
        const isRenewal = known !== undefined && requireRenewable(known, held.length > 0, isResent)
        const saved = { domainKey: entity.key, userKey: invitee.key, invitedBy: caller.id, roleKey: role.key, relation }
        await saveInvitation(tx, { ...saved, lifetimeHours: INVITATION_LIFETIME_HOURS }, { isResent: isRenewal })
        record({
          operation: 'invitation.send',
          domainKey: entity.key,
          // A domain is not named: all that caches know of its channels and devices would be forgotten with it.
          entityKeys: [invitee.key],
          attributes: {
            domain_id: domainId,
            invitee_user_id: inviteeId,
            invited_by: caller.id,
            ...(relation === null ? {} : { relation }),
            role_id: role.id,
            role_name: role.name,
            resend: isRenewal,
          },
        })
      })
    },
    async list(caller, query) {
      const filter = filterOf(query)
      if (query.domain_id !== undefined) {
        const domain = await access.enter(caller, query.domain_id).catch((error: unknown) => {
          if (kindOf(error) === 'forbidden') return undefined
          throw error
        })
        if (domain?.isAdmin === true) return await page({ ...filter, scope: { domainKey: domain.domainKey } }, query)
      }
      return await page({ ...filter, scope: scopeOf(caller, filter) }, query)
    },
    async listOfDomain(caller, domainId, query) {
      const domain = await access.enter(caller, domainId)
      requireAdmin(domain)
      return await page({ ...filterOf(query), scope: { domainKey: domain.domainKey } }, query)
    },
    get: requireSeen,
    async remove(caller, domainId, inviteeId, { onlyPending }) {
      const seen = await requireSeen(caller, domainId, inviteeId)
      await journal.change(caller, async (tx, record) => {
        const invitation = await lockInvitation(tx, seen.domainKey, seen.userKey)
        if (invitation === undefined) throw new ServiceError('not_found', 'there is no such invitation')
        if (onlyPending && inviteeId !== caller.id) requireUnanswered(invitation)
        await deleteInvitation(tx, seen.domainKey, seen.userKey)
        record({
          operation: 'invitation.delete',
          domainKey: seen.domainKey,
          entityKeys: [seen.userKey],
          attributes: factsOf(seen),
        })
      })
    },
  }
}

type RequestedFilter = Omit<InvitationFilter, 'scope'>

/** What the caller received; what he sent too when he asks for his own or for those to somebody else. */
function scopeOf(caller: UserPrincipal, { inviteeId, invitedBy }: RequestedFilter): InvitationScope {
  const within = caller.boundDomainKey === undefined ? {} : { domainKey: caller.boundDomainKey }
  const asksForOthers = inviteeId !== undefined && inviteeId !== caller.id
  if (caller.isPlatformAdmin && (asksForOthers || invitedBy !== undefined)) return within
  const sent = asksForOthers || invitedBy === caller.id ? { sentBy: caller.id } : {}
  return { receivedBy: caller.key, ...sent, ...within }
}

function filterOf(query: InvitationQuery): RequestedFilter {
  const inviteeId = query.invitee_user_id ?? query.user_id
  return {
    state: query.state,
    ...(query.domain_id === undefined ? {} : { domainId: query.domain_id }),
    ...(inviteeId === undefined ? {} : { inviteeId }),
    ...(query.invited_by === undefined ? {} : { invitedBy: query.invited_by }),
    ...(query.role_id === undefined ? {} : { roleId: query.role_id }),
    ...(query.relation === undefined ? {} : { relation: parseRelation(query.relation, 'relation') }),
  }
}
