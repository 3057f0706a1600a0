export { enterForCreation, parentIdOf, requireCreation } from './creation.ts'
export { addressOf, connectableRoutes, domainOf, entitySchema } from './routes.ts'
export { createConnectableRules } from './service.ts'
export type { Address, ConnectableDeps, ConnectableRules, Facts } from './service.ts'
