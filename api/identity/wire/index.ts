export { EffectiveAccessFields } from './effective-access.ts'
export {
  ActionsFilter,
  ChosenId,
  EnabledStatus,
  Id,
  IdsFilter,
  MessageBody,
  Metadata,
  MetadataFilter,
  Name,
  OrderKey,
  PrivateMetadata,
  RequiredName,
  StatusFilter,
  Tags,
  TagsFilter,
  Timestamp,
  createdFields,
} from './fields.ts'
export { PlacedRole, ShownRolesFields } from './shown-roles.ts'
