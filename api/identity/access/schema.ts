/** Wire shapes of the explanation of a decision. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Id } from '../wire/index.ts'
import { ENTITY_TYPES } from './actions.ts'

const EntityTypes = Type.Enum([...ENTITY_TYPES])
const AccessTypes = Type.Enum(['direct', 'direct_group', 'indirect_group', 'domain'], {
  description: 'Place of the role: the entity, its parent group, a group above the parent, or the domain',
})

export const AccessQuestion = Type.Object({
  subject: Type.Optional(Type.String({ maxLength: 36, description: 'Id of a user; defaults to the caller' })),
  entity: Type.String({ maxLength: 64, description: '`<type>:<id>`, for example `client:<client id>`' }),
  action: Type.String({ maxLength: 64, description: 'An action of that type, for example `update`' }),
})
export type AccessQuestion = Static<typeof AccessQuestion>

/** The number of questions of one call; each reads the roles of its entity. */
const MAX_QUESTIONS = 100

export const AccessQuestions = Type.Object(
  { questions: Type.Array(AccessQuestion, { minItems: 1, maxItems: MAX_QUESTIONS }) },
  { $id: 'AccessQuestions' },
)

const RoleName = Type.Object({ role_id: Type.String(), role_name: Type.String() })

/** A place, and the action that a role of this place must contain. */
const place = {
  action: Type.String({ description: 'Granted action on the entity' }),
  needs: Type.String({ description: 'Action that a role of this place must contain' }),
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
    explanation: Type.String({ description: 'Decision as a sentence' }),
    subject_status: Type.Optional(Type.String()),
    is_platform_admin: Type.Boolean(),
    domain: Type.Object({
      id: Id,
      status: Type.String(),
      is_member: Type.Boolean({ description: 'The subject has a role in the domain' }),
      is_admin: Type.Boolean({ description: 'The subject has the built-in role `admin` of the domain' }),
    }),
    missing_actions: Type.Array(Type.String(), { description: 'Required actions that no role grants the subject' }),
    granted_by: Type.Array(
      Type.Object({
        ...place,
        role_id: Type.String(),
        role_name: Type.String(),
        path: Type.Array(Type.Object({ id: Type.String(), name: Type.String() }), {
          description:
            'Groups from the place of the role down to the entity; groups that the caller may not read have no name',
        }),
      }),
    ),
    would_be_granted_by: Type.Array(
      Type.Object({
        ...place,
        roles: Type.Array(RoleName, { description: 'Roles of this place that contain the action' }),
      }),
      { description: 'Places and roles that would grant the missing actions' },
    ),
  },
  { $id: 'AccessAnswer', description: 'Explanation of an access decision' },
)
export type AccessAnswer = Static<typeof AccessAnswer>

/** The answers are in the order of the questions: each is a decision, or the reason why it is missing. */
export const AccessDecisions = Type.Object({
  answers: Type.Array(
    Type.Object({
      entity: Type.String(),
      action: Type.String(),
      allowed: Type.Boolean(),
      missing_actions: Type.Optional(Type.Array(Type.String())),
      explanation: Type.Optional(Type.String({ description: 'Decision as a sentence' })),
      error: Type.Optional(Type.String({ description: 'The kind of the error of this question' })),
      message: Type.Optional(Type.String()),
    }),
  ),
})
export type AccessDecisions = Static<typeof AccessDecisions>
