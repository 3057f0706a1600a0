/** The access fields of an item of a listing (contract 2.4). `findProvidedAccess` returns the values. */
import { Type } from 'typebox'

/** All fields are optional. Spread `EffectiveAccessFields.properties` into the schema of a record. */
export const EffectiveAccessFields = Type.Object({
  role_id: Type.Optional(
    Type.String({ description: "Id of the caller's role on the entity; in lists, with `access_type` direct" }),
  ),
  role_name: Type.Optional(Type.String()),
  actions: Type.Optional(Type.Array(Type.String(), { description: "Actions of the caller's role on the entity" })),
  access_type: Type.Optional(
    Type.Enum(['direct', 'direct_group', 'indirect_group', 'domain'], {
      description: "Origin of the caller's access, in descending precedence; in lists",
    }),
  ),
  access_provider_id: Type.Optional(
    Type.String({ description: 'Id of the group or domain whose role grants access that is not direct' }),
  ),
  access_provider_role_id: Type.Optional(Type.String()),
  access_provider_role_name: Type.Optional(Type.String()),
  access_provider_role_actions: Type.Optional(Type.Array(Type.String())),
})
