export { Accessible } from './accessible.ts'
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
export { enterForCreation } from './enter-for-creation.ts'
export { createExplainer } from './explain.ts'
export type { DomainAccess } from './domain-access.ts'
export type { EntityFacts } from './effective-actions.ts'
export { INHERITED } from './inheritance.ts'
export type { Provider } from './inheritance.ts'
export type { Origin, UserPrincipal } from './principal.ts'
export { AccessPolicy } from './policy.ts'
export type { Located } from './policy.ts'
export { findPageAccess, findProvidedAccess } from './provided-access.ts'
export type { EffectiveAccess } from './provided-access.ts'
export { isAmong } from './reachable.ts'
export type { GrantsPlan } from './reachable.ts'
export { findRoleProviders, listRoleHolders } from './role-holders.ts'
export type { AccessType, PlacedRole, RoleProvider } from './role-holders.ts'
export { registerRouteRules } from './restricted-routes.ts'
export { listedBy, requireRouteAllowed } from './route-rules.ts'
export { requiredScopes } from './route-scopes.ts'
export { lacksScope } from './scoped-access.ts'
export { accessRoutes } from './routes.ts'
export { OUTSIDE_ACTIONS } from './scope-requirements.ts'
export { SCOPE_ENTITY_TYPES, SCOPE_OPERATIONS, createScopeSet } from './scopes.ts'
export type { Scope, ScopeEntityType, ScopeOperation, ScopeSet } from './scopes.ts'
