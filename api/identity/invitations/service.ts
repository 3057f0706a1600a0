/** The rules of invitations, the same for both generations of their paths (contract 1.3, decision 24). */
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import type { AccessPolicy, DomainAccess, UserPrincipal } from '../access/index.ts'
import { listHeldRoles, lockDomain } from '../domains/index.ts'
import type { Journal } from '../journal/index.ts'
import type { RoleEntity, RoleRecord } from '../roles/index.ts'
import {
  addMembers,
  ensureRelationRole,
  findAdminRole,
  findRole,
  heldBy,
  parseRelation,
  requireMayGive,
  roleEntityOf,
} from '../roles/index.ts'
import { findUser } from '../users/index.ts'
import type { InvitationFacts, InvitationFilter, InvitationRecord, InvitationScope } from './repository.ts'
import {
  answerInvitation,
  deleteInvitation,
  findInvitation,
  hasOpenInvitation,
  listInvitations,
  lockInvitation,
  saveInvitation,
} from './repository.ts'
import type { DomainInvitationQuery, InvitationQuery } from './schema.ts'

/** How long an invitation can be accepted (contract 1.3). */
export const INVITATION_LIFETIME_HOURS = 168

/** What is offered: a role of the domain, or a relation of the older generations in any case. */
export type Offer = { roleId: string } | { relation: string }

export type InvitationsService = {
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
   * Makes the caller a member of the role. Throws `not_found` without an invitation, `forbidden` when somebody else is
   * invited or the domain is not enabled, `invalid_state` when it is answered or expired, `unprocessable` when its role is gone.
   */
  accept(caller: UserPrincipal, domainId: string): Promise<void>
  /** Throws as `accept`, but for what concerns the role and the lifetime. */
  reject(caller: UserPrincipal, domainId: string): Promise<void>
  /**
   * The invitee at any time; the inviter and the domain's administrators too, with `onlyPending` not after it was answered:
   * `invalid_state`. Throws `forbidden` or `not_found`.
   */
  remove(caller: UserPrincipal, domainId: string, inviteeId: string, options: { onlyPending: boolean }): Promise<void>
}

function requireId(id: string, path: string): void {
  if (isId(id)) return
  const message = 'must be a UUID in lower case'
  throw new ServiceError('malformed', `${path.slice(1)} ${message}`, { details: [{ path, message }] })
}

function requireAdmin(domain: DomainAccess): void {
  if (!domain.isAdmin)
    throw new ServiceError(
      'forbidden',
      'failed to perform authorization: only an administrator of the domain handles its invitations',
    )
}

function requireUnanswered({ confirmedAt, rejectedAt }: InvitationFacts): void {
  const answer = confirmedAt !== null ? 'accepted' : rejectedAt !== null ? 'rejected' : undefined
  if (answer !== undefined) throw new ServiceError('invalid_state', `the invitation was already ${answer}`)
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

  /** The role as it is now. A relation always has one: it is made where it is missing. */
  async function findOffered(
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

  /** The caller's own invitation; a token that is bound to a domain works in that domain alone (decision 40). */
  async function requireOwn(caller: UserPrincipal, domainId: string): Promise<InvitationRecord> {
    requireId(domainId, '/domain_id')
    const invitation = await findInvitation(db, domainId, caller.id)
    if (invitation !== undefined) {
      if (caller.boundDomainKey === undefined || caller.boundDomainKey === invitation.domainKey) return invitation
    } else if (!(await hasOpenInvitation(db, domainId))) {
      throw new ServiceError('not_found', 'there is no such invitation')
    }
    throw new ServiceError('forbidden', 'failed to perform authorization: the invitation is not yours')
  }

  /** The domain first, then the invitation: the order in which everybody locks. */
  async function lockOwn(tx: Transaction, { domainKey, userKey }: InvitationRecord): Promise<InvitationFacts> {
    const domain = await lockDomain(tx, domainKey)
    if (domain?.status !== 'enabled')
      throw new ServiceError('forbidden', 'failed to perform authorization: the domain is not enabled')
    const invitation = await lockInvitation(tx, domainKey, userKey)
    if (invitation === undefined) throw new ServiceError('not_found', 'there is no such invitation')
    requireUnanswered(invitation)
    return invitation
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

  const attributesOf = ({ domainId, userId, invitedBy, relation, role }: InvitationRecord) => ({
    domain_id: domainId,
    invitee_user_id: userId,
    invited_by: invitedBy,
    ...(relation === null ? {} : { relation }),
    ...(role === undefined ? {} : { role_id: role.id, role_name: role.name }),
  })

  return {
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
    async accept(caller, domainId) {
      const own = await requireOwn(caller, domainId)
      const entity: RoleEntity = {
        type: 'domain',
        key: own.domainKey,
        id: domainId,
        domainKey: own.domainKey,
        domainId,
      }
      await journal.change(caller, async (tx, record) => {
        const invitation = await lockOwn(tx, own)
        if (invitation.isExpired)
          throw new ServiceError('invalid_state', 'the invitation has expired: ask for another one')
        const role = await findOffered(tx, entity, invitation, invitation.invitedBy)
        if (role === undefined)
          throw new ServiceError(
            'unprocessable',
            'failed to accept: the role of this invitation was deleted, ask for another one',
          )
        await addMembers(tx, entity, role, [caller.id])
        await answerInvitation(tx, own.domainKey, own.userKey, 'accepted')
        record({
          operation: 'invitation.accept',
          domainKey: own.domainKey,
          entityKeys: [own.userKey],
          attributes: { ...attributesOf(own), role_id: role.id, role_name: role.name },
        })
      })
    },
    async reject(caller, domainId) {
      const own = await requireOwn(caller, domainId)
      await journal.change(caller, async (tx, record) => {
        await lockOwn(tx, own)
        await answerInvitation(tx, own.domainKey, own.userKey, 'rejected')
        record({
          operation: 'invitation.reject',
          domainKey: own.domainKey,
          entityKeys: [own.userKey],
          attributes: attributesOf(own),
        })
      })
    },
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
          attributes: attributesOf(seen),
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
