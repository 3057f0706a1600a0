export { assignmentRoutes } from './routes.ts'
export { AssignmentsService } from './service.ts'
export { userGroupRoutes } from './user-groups-routes.ts'
