/** `/events`: events of tasks, runs and workers of the domains of each follower, whose rights are checked repeatedly. */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import { startAccessWatch } from '#core/streams/index.ts'
import { startTaskEventFanOut } from '#queues/index.ts'
import type { TaskEvent, TaskEventFanOut, TaskEventFollowing } from '#queues/index.ts'
import type { AllowedDomains, TaskAccess, TaskCaller } from '../access/access.ts'

/** Streams of one process, and of one user in it: the permissions of each are checked repeatedly. */
const MAX_FOLLOWERS = 500
const MAX_FOLLOWERS_PER_USER = 64

export type EventsDeps = {
  database: Database
  access: TaskAccess
  logger: Logger
}

export type Follower = {
  deliver(event: TaskEvent): void
  /** Events before the next one are no longer stored. */
  gap(): void
  end(reason: 'unauthenticated' | 'forbidden' | 'stopping'): void
}

type VisibleDomains = ReadonlySet<number> | 'all' | 'no domain'
type Seen = { tasks: VisibleDomains; workers: VisibleDomains }

export class EventsService {
  readonly #access: TaskAccess
  readonly #slots = new Slots({
    what: 'streams of task events',
    max: MAX_FOLLOWERS,
    share: MAX_FOLLOWERS_PER_USER,
    per: 'user',
  })
  readonly #watch = startAccessWatch()
  readonly #fanOut: TaskEventFanOut

  constructor({ database, access, logger }: EventsDeps) {
    this.#access = access
    this.#fanOut = startTaskEventFanOut(database, logger)
  }

  /**
   * Events of the caller's domains from now on, or after the event with this id. `authenticate` is repeated while the
   * stream is open. Throws `malformed` for an invalid id, `rate_limited` and `unavailable` with too many followers.
   */
  async follow(
    authenticate: () => Promise<TaskCaller>,
    lastEventId: string | undefined,
    follower: Follower,
  ): Promise<{ close(): void }> {
    const caller = await authenticate()
    const leave = await this.#slots.take(caller?.key ?? null)
    let following: TaskEventFollowing | undefined
    let unwatch = () => undefined as void
    const close = () => {
      unwatch()
      following?.close()
      leave()
    }
    try {
      let seen = await this.#visibleTo(caller)
      following = await this.#fanOut.follow(
        {
          sees: (event) => isVisible(event, seen),
          deliver: (event) => follower.deliver(event),
          gap: () => follower.gap(),
          // The response begins when the past events were delivered.
          drained: () => Promise.resolve(),
          isEnded: () => false,
          stop: () => follower.end('stopping'),
        },
        lastEventId,
      )
      unwatch = this.#watch.add({
        authorize: async () => {
          const now = await this.#visibleTo(await authenticate())
          if (isNothing(now) && !isNothing(seen))
            throw new ServiceError('forbidden', 'no domain allows you to read tasks or workers')
          seen = now
        },
        lost(kind) {
          close()
          follower.end(kind === 'unauthenticated' ? kind : 'forbidden')
        },
      })
      return { close }
    } catch (error) {
      close()
      throw error
    }
  }

  /** This process committed a change: reads at once. */
  wake(): void {
    this.#fanOut.wake()
  }

  async stop(): Promise<void> {
    this.#watch.stop()
    await this.#fanOut.stop()
  }

  async #visibleTo(caller: TaskCaller): Promise<Seen> {
    const [tasks, workers] = await Promise.all([
      this.#access.domains(caller, 'task_read'),
      this.#access.domains(caller, 'worker_read'),
    ])
    const keys = (domains: AllowedDomains) =>
      typeof domains === 'string' ? domains : new Set(domains.map(({ key }) => key))
    return { tasks: keys(tasks), workers: keys(workers) }
  }
}

/** The existence of platform workers is visible to all callers. */
function isVisible({ kind, domainKey }: TaskEvent, { tasks, workers }: Seen): boolean {
  const domains = kind === 'worker' ? workers : tasks
  if (domains === 'all') return true
  if (domainKey === null) return kind === 'worker' || domains === 'no domain'
  return domains !== 'no domain' && domains.has(domainKey)
}

function isNothing({ tasks, workers }: Seen): boolean {
  return typeof tasks !== 'string' && typeof workers !== 'string' && tasks.size + workers.size === 0
}
