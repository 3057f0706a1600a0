export { EffectiveAccessFields } from './effective-access.ts'
export {
  ActionsFilter,
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
export { PlacedRole, ShownRolesFields } from './shown-roles.ts'
