/**
 * Accepting and rejecting an invitation: once, while the domain is enabled and the invitation has not expired (contract
 * 1.3).
 */
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { UserPrincipal } from '../access/index.ts'
import { lockDomain } from '../domains/index.ts'
import type { Journal } from '../journal/index.ts'
import type { RoleEntity } from '../roles/index.ts'
import { addMembers } from '../roles/index.ts'
import { factsOf, findOffered, requireId, requireUnanswered } from './invitation.ts'
import type { InvitationFacts, InvitationRecord } from './repository.ts'
import { answerInvitation, findInvitation, hasOpenInvitation, lockInvitation } from './repository.ts'

export class Answers {
  readonly #database: Database
  readonly #journal: Journal

  constructor({ database, journal }: { database: Database; journal: Journal }) {
    this.#database = database
    this.#journal = journal
  }

  /**
   * Makes the caller a member of the role. Throws `not_found` without an invitation, `forbidden` when another user is
   * invited or the domain is not enabled, `invalid_state` when the invitation is answered or expired, `unprocessable`
   * when its role was deleted.
   */
  async accept(caller: UserPrincipal, domainId: string): Promise<void> {
    const own = await this.#requireOwn(caller, domainId)
    const entity: RoleEntity = {
      type: 'domain',
      key: own.domainKey,
      id: domainId,
      domainKey: own.domainKey,
      domainId,
    }
    await this.#journal.change(caller, async (tx, record) => {
      const invitation = await this.#lockOwn(tx, own)
      if (invitation.isExpired) throw new ServiceError('invalid_state', 'the invitation has expired: request a new one')
      const role = await findOffered(tx, entity, invitation, invitation.invitedBy)
      if (role === undefined)
        throw new ServiceError(
          'unprocessable',
          'failed to accept: the role of the invitation was deleted, request a new one',
        )
      await addMembers(tx, entity, role, [caller.id])
      await answerInvitation(tx, own.domainKey, own.userKey, 'accepted')
      record({
        operation: 'invitation.accept',
        domainKey: own.domainKey,
        entityKeys: [own.userKey],
        attributes: { ...factsOf(own), role_id: role.id, role_name: role.name },
      })
    })
  }

  /** Throws the same errors as `accept`, except those of the role and the expiry. */
  async reject(caller: UserPrincipal, domainId: string): Promise<void> {
    const own = await this.#requireOwn(caller, domainId)
    await this.#journal.change(caller, async (tx, record) => {
      await this.#lockOwn(tx, own)
      await answerInvitation(tx, own.domainKey, own.userKey, 'rejected')
      record({
        operation: 'invitation.reject',
        domainKey: own.domainKey,
        entityKeys: [own.userKey],
        attributes: factsOf(own),
      })
    })
  }

  /**
   * Returns the caller's invitation. A token that is bound to a domain is valid in that domain only (decision 40).
   * Contract 1.3 distinguishes an invitation of another user from none, so a caller with the id of a domain learns that
   * it has an open invitation.
   */
  async #requireOwn(caller: UserPrincipal, domainId: string): Promise<InvitationRecord> {
    requireId(domainId, '/domain_id')
    const invitation = await findInvitation(this.#database.db, domainId, caller.id)
    if (invitation !== undefined) {
      if (caller.boundDomainKey === undefined || caller.boundDomainKey === invitation.domainKey) return invitation
    } else if (!(await hasOpenInvitation(this.#database.db, domainId))) {
      throw new ServiceError('not_found', 'invitation not found')
    }
    throw new ServiceError('forbidden', 'failed to perform authorization: the invitation is for another user')
  }

  /** Locks the domain first, then the invitation, in the same order as every other transaction. */
  async #lockOwn(tx: Transaction, { domainKey, userKey }: InvitationRecord): Promise<InvitationFacts> {
    const domain = await lockDomain(tx, domainKey)
    if (domain?.status !== 'enabled')
      throw new ServiceError('forbidden', 'failed to perform authorization: the domain is not enabled')
    const invitation = await lockInvitation(tx, domainKey, userKey)
    if (invitation === undefined) throw new ServiceError('not_found', 'invitation not found')
    requireUnanswered(invitation)
    return invitation
  }
}
