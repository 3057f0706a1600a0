/** Modules as the manager puts them together: resolving for starts, and the routes. */
import type { Secret } from '#core/config/index.ts'
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { TaskAccess } from '../access/access.ts'
import type { Callers } from '../access/callers.ts'
import type { Cluster } from '../placement/cluster.ts'
import { createModulePolicies } from './policies.ts'
import { ProxyClient } from './proxy-client.ts'
import type { BodyReceiver } from './received-body.ts'
import { createImageResolver } from './resolve.ts'
import type { ImageResolver } from './resolve.ts'
import { moduleRoutes } from './routes.ts'
import { ModulesService } from './service.ts'
import type { TicketIssuer } from './tickets.ts'
import { UploadReader } from './upload-reader.ts'
import { createUseRecorder } from './uses.ts'

export { createBodyReceiver } from './received-body.ts'

export type ModulesDeps = {
  database: Database
  access: TaskAccess
  cluster: Cluster
  tickets: TicketIssuer
  proxyAddress: string
  proxyToken: Secret
  /** Which the proxy shows as well; undefined: no TLS. */
  certificate: Buffer | undefined
  bodies: BodyReceiver
  logger: Logger
}

export type Modules = {
  /** The digest behind an image reference, for a start. */
  readonly resolve: ImageResolver['resolve']
  /** The bytes of an upload, for a proxy of the same process. Throws `not_found`. */
  readUpload(digest: string, offset: number, signal: AbortSignal): AsyncIterable<Buffer>
  routes(callers: Callers): RoutePlugin
  close(): void
}

export function createModules(deps: ModulesDeps): Modules {
  const { database, access, cluster, bodies, logger } = deps
  const { tickets, proxyAddress } = deps
  const proxy = new ProxyClient(proxyAddress, deps.certificate, deps.proxyToken)
  const uploads = new UploadReader(database, tickets)
  const policies = createModulePolicies(database)
  const images = createImageResolver({ proxy, policies, record: createUseRecorder(database), logger })
  const modules = new ModulesService({
    database,
    access,
    cluster,
    proxy,
    proxyAddress,
    tickets,
    images,
    policies,
    bodies,
    logger,
  })
  return {
    resolve: images.resolve,
    readUpload: (digest, offset, signal) => uploads.read(digest, offset, signal),
    routes: (callers) => moduleRoutes({ modules, callers, uploads, logger }),
    close: () => proxy.close(),
  }
}
