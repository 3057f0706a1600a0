/** Modules of the manager: resolving for starts, and the routes. */
import type { Secret } from '#core/config/index.ts'
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startProbe } from '#core/readiness/index.ts'
import type { Check } from '#core/readiness/index.ts'
import type { TaskAccess } from '../access/access.ts'
import type { Callers } from '../access/callers.ts'
import type { Cluster } from '../placement/cluster.ts'
import { ModuleContent } from './content.ts'
import { ModulePolicies } from './policies.ts'
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
  /** The certificate of the manager, which the proxy uses too; undefined: no TLS. */
  certificate: Buffer | undefined
  bodies: BodyReceiver
  logger: Logger
}

export type Modules = {
  /** Resolves an image reference to a digest. */
  readonly resolve: ImageResolver['resolve']
  /** The bytes of an upload, for a proxy of the same process. Throws `not_found`. */
  readUpload(digest: string, offset: number, signal: AbortSignal): AsyncIterable<Buffer>
  /** Whether the module proxy answers. */
  readonly check: Check
  routes(callers: Callers): RoutePlugin
  close(): Promise<void>
}

/** How often the proxy is asked whether it is ready, and how long its answer may take. */
const PROBE_INTERVAL_MS = 2_000
const PROBE_DEADLINE_MS = 2_000
const NO_PROXY = 'the module proxy does not answer: modules that no worker has yet cannot be fetched'

export function createModules(deps: ModulesDeps): Modules {
  const { database, access, cluster, bodies, logger } = deps
  const { tickets, proxyAddress } = deps
  const proxy = new ProxyClient(proxyAddress, deps.certificate, deps.proxyToken)
  const uploads = new UploadReader(database, tickets)
  const policies = new ModulePolicies(database)
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
    content: new ModuleContent({ proxy, tickets, uploads }),
    logger,
  })
  const probe = startProbe({
    ask: async (signal) => ((await proxy.isReady(signal)) ? undefined : 'the module proxy is not ready'),
    failure: NO_PROXY,
    intervalMs: PROBE_INTERVAL_MS,
    deadlineMs: PROBE_DEADLINE_MS,
  })
  return {
    check: { name: 'proxy', isRequired: false, read: () => probe.read() },
    resolve: images.resolve,
    readUpload: (digest, offset, signal) => uploads.read(digest, offset, signal),
    routes: (callers) => moduleRoutes({ modules, callers, uploads, logger }),
    async close() {
      await probe.stop()
      proxy.close()
    },
  }
}
