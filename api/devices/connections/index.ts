export { connectionRoutes } from './routes.ts'
export { createConnectionsService } from './service.ts'
export type { ConnectionsService } from './service.ts'
export { BOTH, MAX_PAIRS, pairsOf, parseConnectionPairs, requirePairLimit } from './connection-request.ts'
