export { assignmentRoutes } from './routes.ts'
export { createAssignmentsService } from './service.ts'
export type { AssignmentsService } from './service.ts'
export { userGroupRoutes } from './user-groups-routes.ts'
