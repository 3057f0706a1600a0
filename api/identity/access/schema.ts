/** Wire shapes of the question why somebody may do something, and of the answer. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Id } from '../wire/index.ts'
import { ENTITY_TYPES } from './actions.ts'

const EntityTypes = Type.Enum([...ENTITY_TYPES])
const AccessTypes = Type.Enum(['direct', 'direct_group', 'indirect_group', 'domain'], {
  description: 'Where the role lies: on the entity, its parent group, a group above, the domain',
})

export const AccessQuestion = Type.Object({
  subject: Type.Optional(Type.String({ maxLength: 36, description: 'User id; absent: the caller' })),
  entity: Type.String({ maxLength: 64, description: '`<type>:<id>`, for example `client:<client id>`' }),
  action: Type.String({ maxLength: 64, description: 'An action of that type, for example `update`' }),
})
export type AccessQuestion = Static<typeof AccessQuestion>

const RoleName = Type.Object({ role_id: Type.String(), role_name: Type.String() })

/** A role or a place for one, and what it must hold to give the action. */
const place = {
  action: Type.String({ description: 'The action that is given on the entity' }),
  needs: Type.String({ description: 'The action that the role holds, or must hold, where it lies' }),
  access_type: AccessTypes,
  entity_type: EntityTypes,
  entity_id: Type.String(),
  entity_name: Type.String(),
}

export const AccessAnswer = Type.Object(
  {
    subject: Id,
    entity: Type.Object({ type: EntityTypes, id: Id }),
    action: Type.String(),
    allowed: Type.Boolean(),
    explanation: Type.String({ description: 'The decision in a sentence' }),
    subject_status: Type.Optional(Type.String()),
    is_platform_admin: Type.Boolean(),
    domain: Type.Object({
      id: Id,
      status: Type.String(),
      is_member: Type.Boolean({ description: 'The subject has a role in the domain' }),
      is_admin: Type.Boolean({ description: 'The subject holds its built-in role' }),
    }),
    missing_actions: Type.Array(Type.String(), { description: 'What no role gives the subject' }),
    granted_by: Type.Array(
      Type.Object({
        ...place,
        role_id: Type.String(),
        role_name: Type.String(),
        path: Type.Array(Type.Object({ id: Type.String(), name: Type.String() }), {
          description:
            'Groups from the one with the role down to the entity; without name what the caller may not read',
        }),
      }),
    ),
    would_be_granted_by: Type.Array(
      Type.Object({ ...place, roles: Type.Array(RoleName, { description: 'Roles there that hold it already' }) }),
      { description: 'Membership of one of these roles would give what is missing' },
    ),
  },
  { $id: 'AccessAnswer', description: 'Why somebody may do something, or may not' },
)
export type AccessAnswer = Static<typeof AccessAnswer>
