export { bulkRoutes } from './routes.ts'
export { BulkService } from './service.ts'
