export type { AccessQuery } from './access-filter.ts'
export {
  ACTIONS,
  CONNECTION_BITS,
  CONNECTION_TYPES,
  ENTITY_TYPES,
  actionNamed,
  parseActions,
  parseConnectionType,
  presentConnectionActions,
} from './actions.ts'
export type { ChannelAction, ClientAction, ConnectionType, DomainAction, EntityType, GroupAction } from './actions.ts'
export { findActingUser } from './acting-user.ts'
export { ADMIN_ROLE_KEY, ADMIN_ROLE_NAME, adminRoleId } from './admin-role.ts'
export { ANY_CHANGE } from './any-change.ts'
export { ENTITY_TABLES } from './entities.ts'
export type { LocatedEntity } from './entities.ts'
export { createExplainer } from './explain.ts'
export { findPageKeys } from './page-keys.ts'
export type { Listed as ListedRows, PageQuery } from './listing-statements.ts'
export type { Origin, UserPrincipal } from './principal.ts'
export { createAccessPolicy } from './policy.ts'
export type { AccessPolicy, DomainAccess, EntityFacts, Located, ReachableRows } from './policy.ts'
export { findPageAccess, findProvidedAccess } from './provided-access.ts'
export type { EffectiveAccess } from './provided-access.ts'
export { findRolePlaces, listRoleHolders } from './role-holders.ts'
export type { AccessType, PlacedRole, RolePlace } from './role-holders.ts'
export { accessRoutes } from './routes.ts'
export { shownRows } from './shown-rows.ts'
