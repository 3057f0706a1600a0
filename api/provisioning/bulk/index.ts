export { bulkRoutes } from './routes.ts'
export { createBulkService } from './service.ts'
