/** Views: what programs with a screen need: reading across the entities of a domain, and what they keep for their users. */
import type { DeviceServices } from '#api/devices/index.ts'
import type { AccessPolicy, GroupsService, Quotas } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { TASK_AMOUNTS, countModuleBytes, countOpenRuns, countTaskAmountOf } from '#queues/index.ts'
import { DashboardsService, dashboardRoutes } from './dashboards/index.ts'
import { NewestService, newestRoutes } from './newest/index.ts'
import { OverviewService, overviewRoutes, startSampling } from './overview/index.ts'
import { startDomainStreams } from './stream/index.ts'
import type { DomainStreams } from './stream/index.ts'
import { SearchService, searchRoutes } from './search/index.ts'

export { startDomainStreams }
export type { DomainStreams }

export type Views = { readonly routes: RoutePlugin; stop(): Promise<void> }

export type ViewsDeps = {
  database: Database
  access: AccessPolicy
  devices: Pick<DeviceServices, 'clients' | 'channels'>
  groups: Pick<GroupsService, 'list'>
  quotas: Pick<Quotas, 'measure'>
  logger: Logger
}

export function startViews({ database, access, devices, groups, quotas, logger }: ViewsDeps): Views {
  const sampling = startSampling(database, logger)
  const overview = new OverviewService({ database, access, devices, groups })
  quotas.measure('queued_runs', async (domainKey) => (await countOpenRuns(database.db, domainKey)).queued)
  quotas.measure('concurrent_runs', async (domainKey) => (await countOpenRuns(database.db, domainKey)).held)
  quotas.measure('module_bytes', (domainKey) => countModuleBytes(database.db, domainKey))
  for (const name of TASK_AMOUNTS) quotas.measure(name, (domainKey) => countTaskAmountOf(database.db, name, domainKey))
  const search = new SearchService({ database, access })
  const newest = new NewestService({ database, access })
  const dashboards = new DashboardsService({ database, access })
  return {
    routes: async (app) => {
      await overviewRoutes(overview)(app)
      await searchRoutes(search)(app)
      await newestRoutes(newest)(app)
      await dashboardRoutes(dashboards)(app)
    },
    stop: () => sampling.stop(),
  }
}
