export { workflowRoutes } from './routes.ts'
export { createWorkflowsService } from './service.ts'
export { startWorkflowEngine } from './engine.ts'
