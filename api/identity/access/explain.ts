/**
 * Explains a decision of the policy: the roles and groups that determine it, and the changes that would alter it. It
 * reads the tables instead of the caches of the policy, so it reports what is stored. A test compares its answers with
 * those of the policy.
 */
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError, presentError, refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import { ACTIONS, ENTITY_TYPES, actionNamed } from './actions.ts'
import type { EntityType } from './actions.ts'
import { ADMIN_ROLE_KEY, ADMIN_ROLE_NAME, adminRoleId } from './admin-role.ts'
import { findEntity } from './entities.ts'
import type { LocatedEntity } from './entities.ts'
import type { DomainAccess } from './domain-access.ts'
import type { AccessPolicy } from './policy.ts'
import type { UserPrincipal } from './principal.ts'
import type { DomainStatus } from './domain-grants.ts'
import { findRoleProviders, listRoleHolders } from './role-holders.ts'
import type { PlacedRole, RoleProvider } from './role-holders.ts'
import type { AccessAnswer, AccessDecisions, AccessQuestion } from './schema.ts'

export type Explainer = {
  /**
   * Explains the access of the caller, or of another user if the caller has `view_role_users` on the entity or is an
   * administrator of the domain. The answer about an entity without `read` is the same as about an unknown one. Throws
   * `malformed`, `forbidden`, `not_found`.
   */
  explain(caller: UserPrincipal, domainId: string, question: AccessQuestion): Promise<AccessAnswer>
  /** Decides many questions. A question that cannot be answered has its error. Throws `forbidden` for a domain that is not the caller's. */
  decide(
    caller: UserPrincipal,
    domainId: string,
    questions: readonly AccessQuestion[],
  ): Promise<AccessDecisions['answers']>
}

/** Replaces the id of a group that the caller may not read, as in hierarchies (contract section 3). */
const HIDDEN_ID = 'xxxx-xxxx-xxxx-xxxx'

/**
 * Publishing and subscribing do not require `read` on the channel. Every other action also requires `read` (decision
 * 45).
 */
const WITHOUT_READING = new Set(['read', 'publish', 'subscribe'])

type Subject = {
  key: number
  id: string
  status: string
  isPlatformAdmin: boolean
  isMember: boolean
  isAdmin: boolean
}
type Asked = { type: EntityType; id: string; action: string }

export function createExplainer({ database, access }: { database: Database; access: AccessPolicy }): Explainer {
  const { db } = database
  const explainer: Explainer = {
    async decide(caller, domainId, questions) {
      await access.enter(caller, domainId)
      const answers: AccessDecisions['answers'] = []
      // One after the other: a call takes one connection.
      for (const question of questions) {
        const { entity, action } = question
        try {
          const { allowed, explanation, missing_actions } = await explainer.explain(caller, domainId, question)
          answers.push({ entity, action, allowed, explanation, missing_actions })
        } catch (error) {
          const { error: kind, message } = presentError(error)
          if (kind === 'internal' || kind === 'unavailable' || kind === 'timeout') throw error
          answers.push({ entity, action, allowed: false, error: kind, message })
        }
      }
      return answers
    },
    async explain(caller, domainId, question) {
      const asked = parseQuestion(question)
      const subjectId = question.subject ?? caller.id
      if (!isId(subjectId)) throw refusedField('subject', 'must be the id of a user')
      const domain = await access.enter(caller, domainId)
      const entity = asked.type === 'domain' ? undefined : await findEntity(db, domain.domainKey, asked.type, asked.id)
      const isKnown = asked.type === 'domain' ? asked.id === domainId : entity !== undefined
      const held = await heldBy(domain, entity, isKnown)
      const sees = domain.isAdmin || held('view_role_users')
      if (subjectId !== caller.id && !sees) {
        // The caller has entered the domain, so its existence is not secret.
        if (!isKnown || (asked.type !== 'domain' && !held('read')))
          throw new ServiceError('not_found', 'entity not found')
        throw new ServiceError(
          'forbidden',
          `failed to perform authorization: the access of other users requires view_role_users on this ${asked.type}`,
        )
      }
      const subject = await findSubject(db, domain.domainKey, subjectId)
      // Every member of a domain can use this route. It must not reveal whether users outside the domain exist.
      const isUnscopedAdmin = caller.isPlatformAdmin && caller.boundDomainKey === undefined
      const isStranger = subject !== undefined && !subject.isMember && subjectId !== caller.id
      if (subject === undefined || (isStranger && !isUnscopedAdmin))
        throw new ServiceError('not_found', 'user not found')
      const status = await findDomainStatus(db, domain.domainKey)
      if (!isKnown && sees) throw new ServiceError('not_found', 'entity not found')
      if (!isKnown || (!sees && !held('read'))) return presentHidden(domainId, status, asked, subject)
      const places = await findRoleProviders(db, domain.domainKey, entity)
      const page = { offset: 0, limit: 1 }
      const { roles } = await listRoleHolders(db, places, { userKey: subject.key }, page)
      const needed = WITHOUT_READING.has(asked.action) ? [asked.action] : [asked.action, 'read']
      const missing = subject.isPlatformAdmin
        ? []
        : needed.filter((action) => !roles.some((role) => gives(role, action)))
      const isAllowed = subject.isPlatformAdmin || (isOpen(subject, status) && missing.length === 0)
      const names = await createNames(domain, places)
      const isStopped = subject.status !== 'enabled' || status === 'deleted'
      return {
        subject: subject.id,
        entity: { type: asked.type, id: asked.id },
        action: asked.action,
        allowed: isAllowed && !isStopped,
        explanation: sentenceOf(asked, subject, status, roles, missing),
        ...stateOf(domainId, status, subject),
        missing_actions: missing,
        granted_by: roles.flatMap((role) =>
          needed.filter((action) => gives(role, action)).map((action) => names.presentGranting(role, action)),
        ),
        would_be_granted_by: await findRemedies(places, missing, domain, sees, names),
      }
    },
  }

  return explainer

  /**
   * Returns the places where a role would grant the missing actions, and the roles there that contain them, as far as
   * the caller may read them.
   */
  async function findRemedies(
    places: readonly RoleProvider[],
    missing: readonly string[],
    domain: DomainAccess,
    sees: boolean,
    names: Names,
  ): Promise<AccessAnswer['would_be_granted_by']> {
    if (missing.length === 0) return []
    const { rows } = await sql<{ id: string; name: string; entity_key: number; actions: string[] }>`
      SELECT id, name, entity_key, actions FROM roles WHERE entity_key = ANY (${places.map((place) => place.key)}::bigint[])
       ORDER BY key LIMIT ${MAX_REMEDIES}`.execute(db)
    return missing.flatMap((action) =>
      places.flatMap((place) => {
        const needs = neededAt(place, action)
        if (needs === undefined) return []
        const knowsRoles = domain.isAdmin || (sees && place.accessType === 'direct')
        const roles = rows.filter((row) => row.entity_key === place.key && row.actions.includes(needs))
        const builtIn = { role_id: adminRoleId(place.type, place.key), role_name: ADMIN_ROLE_NAME }
        return [
          {
            ...names.presentPlace(place, action, needs),
            roles: knowsRoles ? [builtIn, ...roles.map(({ id, name }) => ({ role_id: id, role_name: name }))] : [],
          },
        ]
      }),
    )
  }
}

/** Maximum number of roles that are read for suggestions. */
const MAX_REMEDIES = 1000

const neededAt = (place: RoleProvider, action: string): string | undefined =>
  place.inheritance === undefined ? action : place.inheritance.get(action)

function gives({ place, actions }: PlacedRole, action: string): boolean {
  const needed = neededAt(place, action)
  return needed !== undefined && actions.includes(needed)
}

/**
 * Returns a predicate of the caller's own actions. It is false for every action on an entity that the caller must not
 * know.
 */
async function heldBy(
  domain: DomainAccess,
  entity: LocatedEntity | undefined,
  isKnown: boolean,
): Promise<(action: string) => boolean> {
  if (!isKnown) return () => false
  if (entity === undefined) return (action) => domain.can(action as Parameters<DomainAccess['can']>[0])
  const actions = await domain.actionsOn(entity)
  return (action) => actions.has(action)
}

function isOpen(subject: Subject, status: DomainStatus): boolean {
  return subject.isMember && (status === 'enabled' || (status === 'disabled' && subject.isAdmin))
}

async function findSubject(db: Queryable, domainKey: number, id: string): Promise<Subject | undefined> {
  const { rows } = await sql<{
    key: number
    status: string
    role: string
    is_member: boolean
    is_admin: boolean
  }>`SELECT u.key, u.status, u.role, count(g.role_key) > 0 AS is_member, coalesce(bool_or(g.role_key = ${ADMIN_ROLE_KEY}), false) AS is_admin
      FROM users u LEFT JOIN grants g ON g.user_key = u.key AND g.domain_key = ${domainKey} AND g.entity_type = 'domain'
     WHERE u.id = ${id} GROUP BY u.key`.execute(db)
  const row = rows[0]
  if (row === undefined) return undefined
  return {
    key: row.key,
    id,
    status: row.status,
    isPlatformAdmin: row.role === 'admin',
    isMember: row.is_member,
    isAdmin: row.is_admin,
  }
}

async function findDomainStatus(db: Queryable, domainKey: number): Promise<DomainStatus> {
  const { rows } = await sql<{ status: DomainStatus }>`SELECT status FROM domains WHERE key = ${domainKey}`.execute(db)
  return rows[0]?.status ?? 'deleted'
}

/** Presents places to the caller: readable groups with id and name, other groups without. */
type Names = {
  presentPlace(place: RoleProvider, action: string, needs: string): Placed
  presentGranting(role: PlacedRole, action: string): AccessAnswer['granted_by'][number]
}
type Placed = Omit<AccessAnswer['would_be_granted_by'][number], 'roles'>

async function createNames(domain: DomainAccess, places: readonly RoleProvider[]): Promise<Names> {
  const groups = places.filter((place) => place.accessType.endsWith('group'))
  const readable = new Set(places.filter((place) => !groups.includes(place)))
  for (const [index, group] of groups.entries()) {
    const parentGroupKey = groups[index + 1]?.key ?? null
    const actions = await domain.actionsOn({ type: 'group', key: group.key, parentGroupKey })
    if (actions.has('read')) readable.add(group)
  }
  const idOf = (place: RoleProvider) => (readable.has(place) ? place.id : HIDDEN_ID)
  const nameOf = (place: RoleProvider) => (readable.has(place) ? place.name : '')
  const presentPlace = (place: RoleProvider, action: string, needs: string): Placed => ({
    action,
    needs,
    access_type: place.accessType,
    entity_type: place.type,
    entity_id: idOf(place),
    entity_name: nameOf(place),
  })
  return {
    presentPlace,
    presentGranting: (role, action) => ({
      ...presentPlace(role.place, action, neededAt(role.place, action) ?? action),
      role_id: role.id,
      role_name: role.name,
      path: groups
        .slice(0, groups.indexOf(role.place) + 1)
        .toReversed()
        .map((group) => ({ id: idOf(group), name: nameOf(group) })),
    }),
  }
}

function stateOf(
  domainId: string,
  status: DomainStatus,
  subject: Subject,
): Pick<AccessAnswer, 'subject_status' | 'is_platform_admin' | 'domain'> {
  return {
    subject_status: subject.status,
    is_platform_admin: subject.isPlatformAdmin,
    domain: { id: domainId, status, is_member: subject.isMember, is_admin: subject.isAdmin },
  }
}

/** Returns the same answer for an entity without `read` and for an unknown one. */
function presentHidden(domainId: string, status: DomainStatus, asked: Asked, subject: Subject): AccessAnswer {
  return {
    subject: subject.id,
    entity: { type: asked.type, id: asked.id },
    action: asked.action,
    allowed: false,
    explanation: `the ${asked.type} does not exist in this domain, or none of your roles grants read on it`,
    ...stateOf(domainId, status, subject),
    missing_actions: WITHOUT_READING.has(asked.action) ? [asked.action] : [asked.action, 'read'],
    granted_by: [],
    would_be_granted_by: [],
  }
}

const PLACE_TEXTS: Record<RoleProvider['accessType'], (place: RoleProvider) => string> = {
  direct: (place) => `on the ${place.type} itself`,
  direct_group: () => 'on its parent group',
  indirect_group: () => 'on a group above it',
  domain: () => 'on the domain',
}

function sentenceOf(
  { action, type }: Asked,
  subject: Subject,
  status: DomainStatus,
  roles: readonly PlacedRole[],
  missing: readonly string[],
): string {
  if (subject.status !== 'enabled') return `no: the user is ${subject.status}`
  if (status === 'deleted') return 'no: the domain is deleted'
  if (subject.isPlatformAdmin) return 'yes: the user is a platform administrator'
  if (!subject.isMember) return 'no: the user is not a member of the domain'
  if (status !== 'enabled' && !isOpen(subject, status))
    return `no: the domain is ${status}, only ${status === 'disabled' ? 'its administrators' : 'platform administrators'} may enter it`
  if (missing.length > 0) return `no: no role grants the user ${missing.join(' and ')} on this ${type}`
  const role = roles.find((one) => gives(one, action))
  if (role === undefined) return 'no'
  const needed = neededAt(role.place, action) ?? action
  return `yes: the role ${role.name} ${PLACE_TEXTS[role.place.accessType](role.place)} grants ${needed}`
}

function parseQuestion({ entity, action: named }: AccessQuestion): Asked {
  const action = actionNamed(named)
  const match = /^([a-z]+):(.+)$/.exec(entity)
  const type = ENTITY_TYPES.find((one) => one === match?.[1])
  const id = match?.[2]
  if (type === undefined || id === undefined || !isId(id))
    throw refusedField('entity', `must be <type>:<id>, where the type is one of ${ENTITY_TYPES.join(', ')}`)
  if (!(ACTIONS[type] as readonly string[]).includes(action))
    throw refusedField('action', `must be an action of a ${type}: ${ACTIONS[type].join(', ')}`)
  return { type, id, action }
}
