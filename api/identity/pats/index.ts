export { revokePatsOf } from './repository.ts'
export { patRoutes } from './routes.ts'
export { PatsService } from './service.ts'
