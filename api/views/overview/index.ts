export { overviewRoutes } from './routes.ts'
export { startSampling } from './sampling.ts'
export { createOverviewService } from './service.ts'
