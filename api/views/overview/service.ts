/** The overview of a domain, or of the platform. Every figure comes from the room that knows it. */
import type { DeviceServices } from '#api/devices/index.ts'
import { JournalService, presentJournalRecord } from '#api/identity/index.ts'
import type { AccessPolicy, DomainAccess, GroupsService, UserPrincipal } from '#api/identity/index.ts'
import { RATE_STEPS, WINDOW_SECONDS, findRates } from '#api/messages/index.ts'
import type { RateWindow } from '#api/messages/index.ts'
import type { Database } from '#core/database/index.ts'
import { formatTime } from '#core/time.ts'
import { countRuns, countTasks, countWorkers } from '#queues/index.ts'
import { findDeadLetters, findPlatformTotals, findSamples } from './repository.ts'
import type { DomainOverview, LetterKind, PlatformOverview } from './schema.ts'

export type OverviewDeps = {
  database: Database
  access: AccessPolicy
  devices: Pick<DeviceServices, 'clients' | 'channels'>
  groups: Pick<GroupsService, 'list'>
}

const SHOWN_CHANGES = 10
/** A page that is only counted. */
const ONLY_TOTAL = { offset: 0, limit: 1, order: 'created_at', status: 'all', only_total: true } as const

export class OverviewService {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #devices: Pick<DeviceServices, 'clients' | 'channels'>
  readonly #groups: Pick<GroupsService, 'list'>
  readonly #journal: JournalService

  constructor({ database, access, devices, groups }: OverviewDeps) {
    this.#database = database
    this.#access = access
    this.#devices = devices
    this.#groups = groups
    this.#journal = new JournalService({ database: database, access: access })
  }

  /** Throws `forbidden` for a domain that the caller may not enter. */
  async ofDomain(caller: UserPrincipal, domainId: string, window: RateWindow): Promise<DomainOverview> {
    const domain = await this.#access.enter(caller, domainId)
    const { domainKey } = domain
    const [isReader, seesClients, seesTasks, seesWorkers] = [
      domain.can('read'),
      domain.can('client_read'),
      domain.can('task_read'),
      domain.can('worker_read'),
    ]
    const [all, online, channels, grouped, arrived, tasks, started, workers, letters, changed, samples] =
      await Promise.all([
        this.#devices.clients.list(caller, domain.domainId, ONLY_TOTAL),
        this.#devices.clients.list(caller, domain.domainId, { ...ONLY_TOTAL, online: true }),
        this.#devices.channels.list(caller, domain.domainId, ONLY_TOTAL),
        this.#groups.list(caller, domain.domainId, ONLY_TOTAL),
        isReader ? this.#messages(domainKey, window) : undefined,
        seesTasks ? countTasks(this.#database.db, domainKey) : undefined,
        seesTasks ? this.#runs(domainKey, window) : undefined,
        seesWorkers ? countWorkers(this.#database.db, domainKey) : undefined,
        this.#deadLetters(caller, domain),
        isReader ? this.#changes(caller, domain) : undefined,
        seesClients || seesWorkers ? findSamples(this.#database.db, domainKey, window) : [],
      ])
    const series = (name: 'clients' | 'workers', present: number) =>
      samples.map((one, index) => ({ time: one.time, count: index === samples.length - 1 ? present : one[name] }))
    return {
      domain_id: domain.domainId,
      time: formatTime(new Date()),
      window,
      clients: {
        total: all.total,
        online: online.total,
        ...(seesClients ? { series: series('clients', online.total) } : {}),
      },
      channels: { total: channels.total },
      groups: { total: grouped.total },
      ...(arrived === undefined ? {} : { messages: arrived }),
      ...(tasks === undefined ? {} : { tasks }),
      ...(started === undefined ? {} : { runs: started }),
      ...(workers === undefined ? {} : { workers: { ...workers, series: series('workers', workers.alive) } }),
      dead_letters: letters,
      ...(changed === undefined ? {} : { changes: changed }),
    }
  }

  /** Throws `forbidden` unless the caller is a platform administrator. */
  async ofPlatform(caller: UserPrincipal, window: RateWindow): Promise<PlatformOverview> {
    this.#access.requirePlatformAdmin(caller)
    const [totals, arrived, tasks, started, workers] = await Promise.all([
      findPlatformTotals(this.#database.db),
      this.#messages(undefined, window),
      countTasks(this.#database.db, undefined),
      this.#runs(undefined, window),
      countWorkers(this.#database.db, undefined),
    ])
    return {
      time: formatTime(totals.now),
      window,
      users: { total: totals.users },
      domains: { total: totals.domains },
      clients: { total: totals.clients, online: totals.online },
      channels: { total: totals.channels },
      groups: { total: totals.groups },
      messages: arrived,
      tasks,
      runs: started,
      workers,
    }
  }

  async #messages(domainKey: number | undefined, window: RateWindow) {
    return { step_seconds: RATE_STEPS[window], series: await findRates(this.#database.db, domainKey, window) }
  }

  async #runs(domainKey: number | undefined, window: RateWindow) {
    const [stepSeconds, windowSeconds] = [RATE_STEPS[window], WINDOW_SECONDS[window]]
    const { since, steps, ...counts } = await countRuns(this.#database.db, domainKey, { windowSeconds, stepSeconds })
    const series = steps.map(({ at, ...step }) => ({ time: formatTime(new Date(at * 1000)), ...step }))
    return { since: formatTime(since), ...counts, step_seconds: stepSeconds, series }
  }

  async #changes(caller: UserPrincipal, { domainId }: DomainAccess) {
    const { items, showsAddress } = await this.#journal.newestChanges(caller, domainId, SHOWN_CHANGES)
    const shown = { withAttributes: true, withMetadata: false, withAddress: showsAddress }
    return items.map((item) => presentJournalRecord(item, shown))
  }

  #deadLetters(caller: UserPrincipal, domain: DomainAccess) {
    const kinds: LetterKind[] = []
    if (domain.can('task_read')) kinds.push('task')
    if (domain.can('consumer_read')) kinds.push('consumer')
    if (domain.can('rule_update')) kinds.push('rule')
    // The routes of subscriptions accept no personal access token either.
    if (caller.credential !== 'pat') kinds.push('subscription')
    return findDeadLetters(this.#database.db, { domainKey: domain.domainKey, userKey: caller.key }, kinds)
  }
}
