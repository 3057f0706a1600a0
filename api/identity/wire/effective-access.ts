/** By which role the caller has access to an item of a listing (contract 2.4); `findProvidedAccess` gives the values. */
import { Type } from 'typebox'

/** All optional: spread `EffectiveAccessFields.properties` into the schema of a record. */
export const EffectiveAccessFields = Type.Object({
  role_id: Type.Optional(
    Type.String({ description: "In lists: the caller's own role on it; with access_type direct" }),
  ),
  role_name: Type.Optional(Type.String()),
  actions: Type.Optional(Type.Array(Type.String(), { description: "The actions of the caller's own role on it" })),
  access_type: Type.Optional(
    Type.Enum(['direct', 'direct_group', 'indirect_group', 'domain'], {
      description: "In lists: where the caller's access comes from, the strongest first",
    }),
  ),
  access_provider_id: Type.Optional(
    Type.String({ description: 'The group or domain whose role gives access, when it is not direct' }),
  ),
  access_provider_role_id: Type.Optional(Type.String()),
  access_provider_role_name: Type.Optional(Type.String()),
  access_provider_role_actions: Type.Optional(Type.Array(Type.String())),
})
