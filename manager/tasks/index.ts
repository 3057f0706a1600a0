export { taskRoutes } from './routes.ts'
export { createTasksService } from './service.ts'
export type { TasksService } from './service.ts'
