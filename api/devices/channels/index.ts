export { legacyChannelRoutes } from './legacy-routes.ts'
export { channelRoutes } from './routes.ts'
export { ChannelsService } from './service.ts'
