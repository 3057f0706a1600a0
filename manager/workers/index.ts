export { workerRoutes } from './routes.ts'
export { createWorkersService } from './service.ts'
export { startLeaseKeeper } from './leases.ts'
export { ensureJoinToken } from './tokens.ts'
