export { taskEventRoutes } from './routes.ts'
export { createEventsService } from './service.ts'
export type { EventsService } from './service.ts'
