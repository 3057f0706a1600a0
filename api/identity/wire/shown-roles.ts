/** The caller's roles on the record, in a view with `?roles=true`; `rolesShownTo` gives the values. */
import { Type } from 'typebox'

/** A role that gives something on an entity, and where it lies when it lies elsewhere (contract 1.2). */
export const PlacedRole = Type.Object({
  role_id: Type.String(),
  role_name: Type.String(),
  actions: Type.Array(Type.String()),
  access_type: Type.Enum(['direct', 'direct_group', 'indirect_group', 'domain']),
  access_provider_id: Type.Optional(Type.String({ description: 'The group or domain of the role' })),
  access_provider_path: Type.Optional(
    Type.String({ description: 'Ids of the groups from the root down to the provider, joined by a dot' }),
  ),
})

/** All optional: spread `ShownRolesFields.properties` into the schema of a record. */
export const ShownRolesFields = Type.Object({
  member_id: Type.Optional(Type.String({ description: 'With roles=true: the caller' })),
  roles: Type.Optional(Type.Array(PlacedRole, { description: 'With roles=true: his roles that count on it' })),
})
