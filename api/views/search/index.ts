export { searchRoutes } from './routes.ts'
export { SearchService } from './service.ts'
