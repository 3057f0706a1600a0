export { connectionRoutes } from './routes.ts'
export { ConnectionsService } from './service.ts'
export { BOTH, MAX_PAIRS, pairsOf, parseConnectionPairs, requirePairLimit } from './connection-request.ts'
