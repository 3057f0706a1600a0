export { IDENTITY_SETTINGS } from './config.ts'
export type { IdentityConfig } from './config.ts'
export { startIdentity } from './identity.ts'
export type { Identity, IdentityDeps } from './identity.ts'
export * from './access/index.ts'
export { GroupPage, GroupQuery, presentPage as presentGroupPage } from './groups/index.ts'
export type { GroupsService } from './groups/index.ts'
export { startEvents } from './events/index.ts'
export { journalOfDomain, startJournalRetention } from './journal/index.ts'
export type { Actor, ChangeListener, Journal, JournalEntry, Recorder } from './journal/index.ts'
export {
  RELATIONS,
  addMembers,
  ensureRelationRole,
  grantingAdmin,
  heldBy,
  parseRelation,
  relationOf,
  removeMembers,
  removeRolesOf,
  requireMayGive,
  requireNotLastAdmin,
  roleEntityOf,
  rolesShownTo,
} from './roles/index.ts'
export type { Relation, RoleEntity, RoleRecord, ShownRoles } from './roles/index.ts'
export { bearerOf, optionalBearerOf, originOf } from './tokens/index.ts'
export type { Logins } from './tokens/index.ts'
export { LoginThrottle, networkOf } from './throttle/index.ts'
export type { ThrottleRules } from './throttle/index.ts'
export { isMailAddress } from './mail/index.ts'
export type { Mail, Mailer } from './mail/index.ts'
export { requireRoute, startDomainPurge } from './domains/index.ts'
export type { DomainPurge } from './domains/index.ts'
export {
  ActionsFilter,
  ChosenId,
  EffectiveAccessFields,
  EnabledStatus,
  Id,
  MessageBody,
  Metadata,
  MetadataFilter,
  Name,
  OrderKey,
  RequiredName,
  ShownRolesFields,
  StatusFilter,
  Tags,
  Timestamp,
} from './wire/index.ts'
export {
  allOf,
  contains,
  containsMetadata,
  findPageKeys,
  hasTrigrams,
  parseMetadataFilter,
  shownRows,
} from './listing/index.ts'
export type { AccessQuery, Filters, PageQuery } from './listing/index.ts'
