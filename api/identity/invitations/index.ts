export { legacyInvitationRoutes } from './legacy-routes.ts'
export { invitationRoutes } from './routes.ts'
export { INVITATION_LIFETIME_HOURS, createInvitationsService } from './service.ts'
export type { InvitationsService } from './service.ts'
