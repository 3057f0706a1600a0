/**
 * The rights with which a rule reads and acts: those of the user who last changed it. They are required when the rule is saved, and looked at
 * again whenever a message meets it.
 */
import { requireSubscribe } from '#api/consumers/index.ts'
import type { MessageGate } from '#api/devices/index.ts'
import { findActingUser } from '#api/identity/index.ts'
import type { AccessPolicy, UserPrincipal } from '#api/identity/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { CompiledDefinition } from './compile.ts'

export type RightsDeps = { access: AccessPolicy; gate: Pick<MessageGate, 'authorize'> }

/** Throws `forbidden`, which says what is lacking. */
export async function requireRights(
  { access, gate }: RightsDeps,
  principal: UserPrincipal,
  domainId: string,
  { filter, state, schedule, actions, usesClients, conditionTask }: CompiledDefinition,
): Promise<void> {
  const domain = await access.enter(principal, domainId)
  if (filter.channels !== undefined) await requireSubscribe(gate, principal, domainId, filter.channels)
  else if (state === undefined && schedule?.isOverSeries !== false) domain.require('channel_subscribe')
  if (state?.readsDocuments === true) domain.require('client_state_read')
  if (conditionTask !== undefined) domain.require('task_start')
  if (usesClients) domain.require('client_read')
  for (const action of actions) {
    if (action.type === 'start') domain.require('task_start')
    if (action.type !== 'publish') continue
    try {
      await gate.authorize({ kind: 'user', principal }, { domain: domainId, channel: action.channelId }, 'publish')
    } catch (error) {
      if (kindOf(error) !== 'forbidden' && kindOf(error) !== 'not_found') throw error
      throw new ServiceError(
        'forbidden',
        `failed to perform authorization: requires publish on the channel ${action.channelId}, which must exist and be enabled`,
        { cause: error },
      )
    }
  }
}

/** Why the user of a rule may no longer do what it does, as a sentence. Undefined: nothing is lacking. */
export async function lackOf(
  db: Queryable,
  deps: RightsDeps,
  userKey: number,
  domainId: string,
  rule: CompiledDefinition,
): Promise<string | undefined> {
  const principal = await findActingUser(db, userKey)
  if (principal === undefined) return 'the user of the rule was deleted or disabled'
  try {
    await requireRights(deps, principal, domainId, rule)
    return undefined
  } catch (error) {
    if (kindOf(error) !== 'forbidden' && kindOf(error) !== 'not_found') throw error
    return (error as Error).message.replace(/^failed to perform authorization: /, '')
  }
}
