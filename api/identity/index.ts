export { IDENTITY_SETTINGS } from './config.ts'
export type { IdentityConfig } from './config.ts'
export { RESERVED_ROUTES, startIdentity } from './identity.ts'
export type { Identity, IdentityDeps } from './identity.ts'
export * from './access/index.ts'
export { GroupPage, GroupQuery, presentPage as presentGroupPage } from './groups/index.ts'
export type { GroupsService } from './groups/index.ts'
export { eventData, startEvents } from './events/index.ts'
export type { EventRecord, EventWriter, EventsService } from './events/index.ts'
export {
  ACTOR_COLUMNS,
  JournalItem,
  actorColumns,
  countedRows,
  JournalService,
  createTrialFilter,
  deletedRows,
  difference,
  endTrial,
  isTrial,
  outsideTrial,
  hintJournal,
  insertRecords,
  journalOfDomain,
  managedEntry,
  presentRecord as presentJournalRecord,
  recordManaged,
  recordManagedOfMany,
  registerTrials,
  startJournalRetention,
  storeRemoved,
} from './journal/index.ts'
export type {
  Actor,
  ChangeListener,
  Facts,
  Journal,
  JournalEntry,
  ManagedType,
  Recorder,
  TrialRows,
} from './journal/index.ts'
export {
  RELATIONS,
  addMembers,
  ensureRelationRole,
  grantingAdmin,
  readActionCheck,
  parseRelation,
  relationNameOf,
  removeMembers,
  removeRolesOf,
  requireGrantable,
  requireNotLastAdmin,
  roleEntityOf,
  rolesShownTo,
} from './roles/index.ts'
export type { Relation, RoleEntity, RoleRecord, ShownRoles } from './roles/index.ts'
export { bearerOf, claimedDomainOf, isTokenLike, optionalBearerOf, originOf } from './tokens/index.ts'
export type { Logins, PageLogins } from './tokens/index.ts'
export { LoginThrottle, guessRules, networkOf } from './throttle/index.ts'
export { MAIL_METRICS, isMailAddress } from './mail/index.ts'
export type { Mail, Mailer } from './mail/index.ts'
export {
  DOMAIN_QUOTAS,
  DayCounts,
  DomainQuotaUsage,
  DomainMeter,
  FullDomains,
  deleteOldQuotaDays,
  forgetKept,
  keptByDomains,
  releaseKept,
  requireWithin,
  usedTodayByDomains,
  usedUp,
} from './quotas/index.ts'
export type { DailyQuota, DomainQuota, Quotas } from './quotas/index.ts'
export { parseRouteName, startDomainPurge } from './domains/index.ts'
export type { DomainPurge } from './domains/index.ts'
export {
  ActionsFilter,
  ChosenId,
  EffectiveAccessFields,
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
  ShownRolesFields,
  StatusFilter,
  Tags,
  Timestamp,
  createdFields,
} from './wire/index.ts'
export {
  allOf,
  anyOf,
  contains,
  containsMetadata,
  findNamed,
  findPageKeys,
  createdWithin,
  hasIdOf,
  endAt,
  hasTrigrams,
  parseMetadataFilter,
  shownRows,
} from './listing/index.ts'
export type { AccessQuery, CreatedQuery, Filters, PageQuery } from './listing/index.ts'
