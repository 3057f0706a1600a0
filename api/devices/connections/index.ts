export { connectionRoutes } from './routes.ts'
export { createConnectionsService } from './service.ts'
export type { ConnectionsService } from './service.ts'
export { MAX_PAIRS, pairsOf, requirePairLimit } from './connection-request.ts'
