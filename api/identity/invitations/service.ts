/**
 * The rules of invitations, for current and legacy paths (contract 1.3, decision 24). `answers.ts` contains the
 * answers.
 */
import type { Database } from '#core/database/index.ts'
import { ServiceError, kindOf, takenField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { SharedLimits } from '#core/limits/index.ts'
import { NO_MORE } from '#core/cursor.ts'
import type { Page, PageRange } from '#core/page.ts'
import type { AccessPolicy, DomainAccess, UserPrincipal } from '../access/index.ts'
import { listAssignedRoles, lockDomain } from '../domains/index.ts'
import type { Journal } from '../journal/index.ts'
import { readActionCheck, parseRelation, requireGrantable, roleEntityOf } from '../roles/index.ts'
import type { Mailer } from '../mail/index.ts'
import { findUser, findUserByEmail } from '../users/index.ts'
import { Answers } from './answers.ts'
import { INVITATION_LIFETIME_HOURS, factsOf, findOffered, requireId, requireUnanswered } from './invitation.ts'
import { createMailLimit } from './mailed/limit.ts'
import type { MailLimit } from './mailed/limit.ts'
import { invitationMail, issueMailed, requireAddress } from './mailed/mailed.ts'
import { deleteMailed, listMailed } from './mailed/repository.ts'
import type { MailedRecord } from './mailed/repository.ts'
import type { InvitationFacts, InvitationFilter, InvitationRecord, InvitationScope } from './repository.ts'
import { deleteInvitation, findInvitation, listInvitations, lockInvitation, saveInvitation } from './repository.ts'
import type { DomainInvitationQuery, InvitationQuery } from './schema.ts'

const INVITEE = '/invitee_user_id'

/** An address without an account gets a mail. */
export type Invitee = { id: string } | { email: string }

/** The offer of an invitation: a role of the domain, or a legacy relation in any case. */
export type Offer = { roleId: string } | { relation: string }

function requireAdmin(domain: DomainAccess): void {
  if (!domain.isAdmin)
    throw new ServiceError('forbidden', 'failed to perform authorization: requires an administrator of the domain')
}

export class InvitationsService {
  /** For the invitee. */
  readonly answers: Answers
  readonly #database: Database
  readonly #journal: Journal
  readonly #access: AccessPolicy
  readonly #mailer: Mailer
  readonly #publicUrl: string
  readonly #mailLimit: MailLimit

  constructor({
    database,
    journal,
    access,
    mailer,
    limits,
    publicUrl,
  }: {
    database: Database
    journal: Journal
    access: AccessPolicy
    mailer: Mailer
    /** Shared with other processes; undefined: there are none. */
    limits: SharedLimits | undefined
    /** Base of the links in mails. */
    publicUrl: string
  }) {
    this.answers = new Answers({ database, journal })
    this.#database = database
    this.#journal = journal
    this.#access = access
    this.#mailer = mailer
    this.#publicUrl = publicUrl
    this.#mailLimit = createMailLimit(limits)
  }

  /**
   * Requires an administrator of the domain. Throws `conflict` for an open, rejected or accepted invitation unless
   * `isResent` renews it. An expired invitation is replaced, also an accepted one of a user who has left the domain.
   * Throws `malformed`, `forbidden`, and `unprocessable` for an unknown user or role.
   */
  async send(
    caller: UserPrincipal,
    domainId: string,
    { invitee: named, offer, isResent }: { invitee: Invitee; offer: Offer; isResent: boolean },
  ): Promise<void> {
    if ('id' in named) requireId(named.id, 'relation' in offer ? '/user_id' : '/invitee_user_id')
    const email = 'email' in named ? requireAddress(named.email) : undefined
    const relation = 'relation' in offer ? parseRelation(offer.relation) : null
    const domain = await this.#access.enter(caller, domainId)
    domain.require('add_role_users')
    requireAdmin(domain)
    const holds = await readActionCheck(domain)
    const entity = roleEntityOf(domain)
    const refund = email === undefined ? undefined : await this.#mailLimit.take(caller.id, email)
    const invite = this.#journal.change(caller, async (tx, record) => {
      await lockDomain(tx, entity.key)
      const invitee = 'id' in named ? await findUser(tx, named.id) : await findUserByEmail(tx, named.email)
      const roleId = 'roleId' in offer ? offer.roleId : undefined
      const role = await findOffered(tx, entity, { relation, roleId }, caller.id)
      if (role === undefined)
        throw new ServiceError('unprocessable', `failed to invite: role ${roleId} does not exist in the domain`)
      requireGrantable(holds, role.actions)
      const offered = {
        invited_by: caller.id,
        ...(relation === null ? {} : { relation }),
        role_id: role.id,
        role_name: role.name,
      }
      if (invitee === undefined && email !== undefined) {
        const mailed = { domainKey: entity.key, email, invitedBy: caller.id, roleKey: role.key, relation }
        const issued = await issueMailed(tx, mailed, { isResent })
        record({
          operation: 'invitation.mail',
          domainKey: entity.key,
          entityKeys: [],
          attributes: { domain_id: domainId, email, ...offered },
        })
        return issued
      }
      if (invitee?.status !== 'enabled')
        throw new ServiceError(
          'unprocessable',
          `failed to invite: user ${'id' in named ? named.id : named.email} does not exist`,
        )
      const held = await listAssignedRoles(tx, invitee.key, entity.key)
      if (held.some((one) => one.id === role.id))
        throw takenField(
          '/role_id',
          `the user already has the role ${role.name} in the domain`,
          'is already a role of the user',
        )
      const known = await lockInvitation(tx, entity.key, invitee.key)
      const isRenewal = known !== undefined && this.#requireRenewable(known, held.length > 0, isResent)
      const saved = { domainKey: entity.key, userKey: invitee.key, invitedBy: caller.id, roleKey: role.key, relation }
      await saveInvitation(tx, { ...saved, lifetimeHours: INVITATION_LIFETIME_HOURS }, { isResent: isRenewal })
      record({
        operation: 'invitation.send',
        domainKey: entity.key,
        // The key of the domain is omitted: it would invalidate all cache entries of its channels and devices.
        entityKeys: [invitee.key],
        attributes: {
          domain_id: domainId,
          invitee_user_id: invitee.id,
          ...offered,
          resend: isRenewal,
        },
      })
      return undefined
    })
    const token = await invite.catch((error: unknown) => {
      refund?.()
      throw error
    })
    // The mail is sent after the commit, so that its link is valid.
    if (token !== undefined && email !== undefined)
      void this.#mailer.send(invitationMail(this.#publicUrl, email, token))
    else refund?.()
  }

  /**
   * Lists the invitations that the caller received. With the `domain_id` of a domain that the caller administers, lists
   * all of that domain. With the caller in `invited_by`, or with another invitee, also lists those that the caller
   * sent. Platform administrators see every invitation that matches the filter.
   */
  async list(caller: UserPrincipal, query: InvitationQuery): Promise<Page<InvitationRecord>> {
    const filter = filterOf(query)
    if (query.domain_id !== undefined) {
      const domain = await this.#access.enter(caller, query.domain_id).catch((error: unknown) => {
        if (kindOf(error) === 'forbidden') return undefined
        throw error
      })
      if (domain?.isAdmin === true)
        return await this.#page({ ...filter, scope: { domainKey: domain.domainKey } }, query)
    }
    return await this.#page({ ...filter, scope: scopeOf(caller, filter) }, query)
  }

  /** Lists every invitation to the domain. Requires an administrator of the domain. Throws `forbidden`. */
  async listOfDomain(
    caller: UserPrincipal,
    domainId: string,
    query: DomainInvitationQuery,
  ): Promise<Page<InvitationRecord> & { mailed: MailedRecord[]; hasMailServer: boolean }> {
    const domain = await this.#access.enter(caller, domainId)
    requireAdmin(domain)
    const scope = { domainKey: domain.domainKey }
    const [found, mailed] = await Promise.all([
      this.#page({ ...filterOf(query), scope }, query),
      listMailed(this.#database.db, domain.domainKey),
    ])
    return { ...found, mailed, hasMailServer: this.#mailer.hasServer }
  }

  /** Requires the invitee, the inviter or an administrator of the domain. Throws `forbidden` or `not_found`. */
  async get(caller: UserPrincipal, domainId: string, inviteeId: string): Promise<InvitationRecord> {
    const isInvitee = inviteeId === caller.id
    const domain = isInvitee ? undefined : await this.#access.enter(caller, domainId)
    const areIds = isId(domainId) && isId(inviteeId)
    const invitation = areIds ? await findInvitation(this.#database.db, domainId, inviteeId) : undefined
    const isInviter = invitation?.invitedBy === caller.id
    if (domain !== undefined && !isInviter) requireAdmin(domain)
    if (invitation === undefined) throw new ServiceError('not_found', 'invitation not found')
    if (isInvitee && caller.boundDomainKey !== undefined && caller.boundDomainKey !== invitation.domainKey)
      throw new ServiceError('not_found', 'invitation not found')
    return invitation
  }

  /**
   * The invitee can remove the invitation at any time. The inviter and administrators of the domain can too; with
   * `onlyPending` an answered invitation is `invalid_state`. Throws `forbidden` or `not_found`.
   */
  async remove(
    caller: UserPrincipal,
    domainId: string,
    inviteeId: string,
    { onlyPending }: { onlyPending: boolean },
  ): Promise<void> {
    const seen = await this.get(caller, domainId, inviteeId)
    await this.#journal.change(caller, async (tx, record) => {
      const invitation = await lockInvitation(tx, seen.domainKey, seen.userKey)
      if (invitation === undefined) throw new ServiceError('not_found', 'invitation not found')
      if (onlyPending && inviteeId !== caller.id) requireUnanswered(invitation)
      await deleteInvitation(tx, seen.domainKey, seen.userKey)
      record({
        operation: 'invitation.delete',
        domainKey: seen.domainKey,
        entityKeys: [seen.userKey],
        attributes: factsOf(seen),
      })
    })
  }

  /** Makes the link of a mail invalid. Requires an administrator of the domain. Throws `forbidden` or `not_found`. */
  async removeMailed(caller: UserPrincipal, domainId: string, given: string): Promise<void> {
    const email = requireAddress(given)
    const domain = await this.#access.enter(caller, domainId)
    requireAdmin(domain)
    await this.#journal.change(caller, async (tx, record) => {
      await lockDomain(tx, domain.domainKey)
      if (!(await deleteMailed(tx, domain.domainKey, email)))
        throw new ServiceError('not_found', 'invitation not found')
      record({
        operation: 'invitation.delete',
        domainKey: domain.domainKey,
        entityKeys: [],
        attributes: { domain_id: domainId, email },
      })
    })
  }

  /** Throws `conflict` when the existing invitation cannot be replaced. Returns true when it is renewed. */
  #requireRenewable(known: InvitationFacts, isMember: boolean, isResent: boolean): boolean {
    if (known.confirmedAt !== null) {
      // The user accepted and has left the domain since, so this is a new invitation.
      if (!isMember) return false
      throw takenField(
        INVITEE,
        'the user has already accepted an invitation to the domain',
        'has already accepted an invitation',
      )
    }
    if (isResent) return true
    if (known.rejectedAt === null && known.isExpired) return false
    throw takenField(
      INVITEE,
      'the user is already invited to the domain: set resend to renew the invitation',
      'is already invited',
    )
  }

  async #page(filter: InvitationFilter, range: PageRange): Promise<Page<InvitationRecord>> {
    const { offset, limit } = range
    const ids = [filter.domainId, filter.inviteeId, filter.invitedBy]
    if (ids.some((id) => id !== undefined && !isId(id))) return { total: 0, offset, limit, items: [], next: NO_MORE }
    return { offset, limit, ...(await listInvitations(this.#database.db, filter, range)) }
  }
}

type RequestedFilter = Omit<InvitationFilter, 'scope'>

/**
 * Returns the received invitations, and the sent ones when the query selects the caller as inviter or another invitee.
 */
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
