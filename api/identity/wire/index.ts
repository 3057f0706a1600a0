export { EffectiveAccessFields } from './effective-access.ts'
export {
  ChosenId,
  EnabledStatus,
  Id,
  MessageBody,
  Metadata,
  MetadataFilter,
  Name,
  OrderKey,
  RequiredName,
  StatusFilter,
  Tags,
  Timestamp,
} from './fields.ts'
export {
  allOf,
  anyOf,
  contains,
  containsMetadata,
  inOrder,
  orderOf,
  orderedBy,
  parseMetadataFilter,
  partsByName,
  shortNamePattern,
} from './listing.ts'
export { PlacedRole, ShownRolesFields } from './shown-roles.ts'
