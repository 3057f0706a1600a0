export { taskEventRoutes } from './routes.ts'
export { createEventsService } from './service.ts'
export type { EventsService } from './service.ts'
export { EVENT_STREAM, EventStream } from './event-stream.ts'
