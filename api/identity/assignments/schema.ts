/** Wire shapes of assignments (contract 4.3). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { documented } from '#http/index.ts'
import { Direction, pageFields, pageQuery } from '#core/page.ts'
import type { Page } from '#core/page.ts'
import type { UserPrincipal } from '../access/index.ts'
import { RELATIONS } from '../roles/index.ts'
import type { UserRecord } from '../users/index.ts'
import { User, presentTo } from '../users/index.ts'
import { Id, MetadataFilter, Name, OrderKey } from '../wire/index.ts'

/** Maximum number of users in one request. Each of them is locked until the transaction ends. */
export const MAX_ASSIGNED = 1000

const UserIds = Type.Array(Id, { description: `At most ${MAX_ASSIGNED}` })
const RelationWord = Type.String({
  maxLength: 32,
  description: 'Relation in any case: administrator, editor, contributor, member, viewer or guest',
  ...documented({ enum: [...RELATIONS] }, 'Relation'),
})

export const Assignment = Type.Object({ relation: RelationWord, user_ids: UserIds })
export type Assignment = Static<typeof Assignment>

export const Unassignment = Type.Object(
  {
    relation: Type.Optional(RelationWord),
    user_ids: Type.Optional(UserIds),
    user_id: Type.Optional(Id),
  },
  documented({}, 'Assignment'),
)
export type Unassignment = Static<typeof Unassignment>

export const ForceQuery = Type.Object(
  {
    force: Type.Optional(
      Type.Boolean({
        description:
          'Only for platform administrators: makes the caller the administrator when the last one is unassigned',
      }),
    ),
  },
  documented({}, 'Unassignment'),
)

export const AssignedQuery = Type.Object({
  ...pageQuery(),
  status: Type.Enum(['enabled', 'disabled', 'all'], { default: 'enabled' }),
  name: Type.Optional(Name),
  first_name: Type.Optional(Name),
  last_name: Type.Optional(Name),
  identity: Type.Optional(Type.String({ maxLength: 254, description: 'Substring of the username or email' })),
  username: Type.Optional(Type.String({ maxLength: 254 })),
  email: Type.Optional(Type.String({ maxLength: 254 })),
  tag: Type.Optional(Name),
  id: Type.Optional(Id),
  metadata: Type.Optional(MetadataFilter),
  order: OrderKey,
  dir: Type.Optional(Direction),
  only_total: Type.Optional(Type.Boolean()),
})
export type AssignedQuery = Static<typeof AssignedQuery>

export const AssignedPage = Type.Object({
  ...pageFields,
  users: Type.Array(User),
  members: Type.Array(User, { description: 'Alias of `users`' }),
})

export const Permissions = Type.Object({ permissions: Type.Array(Type.String()) })

export function presentAssigned(
  caller: UserPrincipal,
  { total, offset, limit, items, next }: Page<UserRecord>,
  isOnlyTotal: boolean | undefined,
) {
  if (isOnlyTotal === true) return { total, users: [], members: [] }
  const users = items.map((user) => presentTo(caller, user))
  return { total, offset, limit, users, members: users, next }
}
