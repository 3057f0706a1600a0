/** The caller's roles on a record, in a view with `?roles=true`. `rolesShownTo` returns the values. */
import { Type } from 'typebox'
import { documented } from '#http/index.ts'

/** A role that grants something on an entity, with its place if it is inherited (contract 1.2). */
export const PlacedRole = Type.Object(
  {
    role_id: Type.String(),
    role_name: Type.String(),
    actions: Type.Array(Type.String()),
    access_type: Type.Enum(['direct', 'direct_group', 'indirect_group', 'domain']),
    access_provider_id: Type.Optional(Type.String({ description: 'Id of the group or domain of the role' })),
    access_provider_path: Type.Optional(
      Type.String({ description: 'Ids of the groups from the root to the provider, separated by `.`' }),
    ),
  },
  documented({}, 'PlacedRole'),
)

/** All fields are optional. Spread `ShownRolesFields.properties` into the schema of a record. */
export const ShownRolesFields = Type.Object({
  member_id: Type.Optional(Type.String({ description: 'Id of the caller; with `roles=true`' })),
  roles: Type.Optional(
    Type.Array(PlacedRole, { description: 'Effective roles of the caller on the entity; with `roles=true`' }),
  ),
})
