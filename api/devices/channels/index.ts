export { legacyChannelRoutes } from './legacy-routes.ts'
export { channelRoutes } from './routes.ts'
export { createChannelsService } from './service.ts'
export type { ChannelsService } from './service.ts'
