/** The imports of `npm start` except the infrastructure: loaded while the database is starting. */
export { API_METRICS, apiGauges, createChannelReader, startApi } from '#api/index.ts'
export { INFRASTRUCTURE_METRICS, startGaugeCollection } from '#core/infrastructure/index.ts'
export { collectRoutes, createHttpServer, createMetrics, readTlsFiles, startTlsFiles } from '#core/http/index.ts'
export {
  MANAGER_METRICS,
  effectiveAuthMode,
  createTaskAccess,
  managerGauges,
  prepareGrpcTls,
  proxyTokenOf,
  readGrpcTlsFiles,
  startManager,
  startTaskAccess,
} from '#manager/index.ts'
export { PROCESS_METRICS } from '#core/processes/index.ts'
export { reachableFrom } from '#proto/index.ts'
export { PROXY_METRICS, startProxy } from '#proxy/index.ts'
