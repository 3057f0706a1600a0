/** Everything that `npm start` is made of but the infrastructure: loaded while the database is starting. */
export { SERVICE_PORTS, createChannelReader, startApi } from '#api/index.ts'
export { createMetrics, startHttpServer, startTlsFiles } from '#core/http/index.ts'
export { authModeOf, createTaskAccess, prepareGrpcTls, proxyTokenOf, startManager } from '#manager/index.ts'
export { reachableFrom } from '#proto/index.ts'
export { startProxy } from '#proxy/index.ts'
