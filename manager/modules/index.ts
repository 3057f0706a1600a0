/** Modules as the manager puts them together: resolving for starts, and the routes. */
import type { Secret } from '#core/config/index.ts'
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { TaskAccess } from '../access.ts'
import type { Callers } from '../callers.ts'
import type { Cluster } from '../dispatch/cluster.ts'
import { createModuleRefs } from './module-refs.ts'
import { createModulePolicies } from './policies.ts'
import { createProxyClient } from './proxy-client.ts'
import type { BodyReceiver } from './received-body.ts'
import { createImageResolver } from './resolve.ts'
import type { ImageResolver } from './resolve.ts'
import { moduleRoutes } from './routes.ts'
import { createModulesService } from './service.ts'
import type { TicketOffice } from './tickets.ts'
import { createUseRecorder } from './uses.ts'

export { createBodyReceiver } from './received-body.ts'
export { forgetUploads } from './forget-uploads.ts'

export type ModulesDeps = {
  database: Database
  access: TaskAccess
  cluster: Cluster
  tickets: TicketOffice
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
  routes(callers: Callers): RoutePlugin
  close(): void
}

export function createModules(deps: ModulesDeps): Modules {
  const { database, access, cluster, bodies, logger } = deps
  const proxy = createProxyClient(deps.proxyAddress, deps.certificate, deps.proxyToken)
  const policies = createModulePolicies(database)
  const images = createImageResolver({ proxy, policies, record: createUseRecorder(database), logger })
  const refs = createModuleRefs(deps.proxyAddress, deps.tickets)
  const modules = createModulesService({ database, access, cluster, refs, proxy, images, policies, bodies, logger })
  return {
    resolve: images.resolve,
    routes: (callers) => moduleRoutes({ modules, callers }),
    close: () => proxy.close(),
  }
}
