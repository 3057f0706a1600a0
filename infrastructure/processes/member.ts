/**
 * One of several equal processes, as the supervisor started it. It ends at once when the supervisor is gone, because the next start
 * needs its ports.
 */
import { EXIT_FAILED, ServiceError } from '#core/errors/index.ts'
import type { Whole } from '#http/index.ts'
import type { Registry } from '#core/metrics/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import type { Readiness, ReadinessReport } from '#core/readiness/index.ts'
import { Link } from './link.ts'
import type { Machine } from './machine.ts'
import {
  ASSIGNMENT,
  METRICS,
  METRICS_DEADLINE_MS,
  READINESS,
  READINESS_DEADLINE_MS,
  REFUND_TOKENS,
  SERVING,
  TAKE_TOKENS,
} from './link-messages.ts'

/** The supervisor answers when the parts that this process needs are running. */
const ASSIGNMENT_DEADLINE_MS = 120_000
/** The time that a login waits for limits, as with Redis. */
const LIMITS_DEADLINE_MS = 250
/** The processes answer the supervisor within their deadline; then it answers this process. */
const WHOLE_METRICS_DEADLINE_MS = METRICS_DEADLINE_MS + 1000

export type Member = {
  readonly process: string
  readonly machine: Machine
  /** The assignment of this process by the supervisor. Throws `unavailable` without a response. */
  assignment<A>(): Promise<A>
  /** Reports readiness and metrics of this process to the supervisor, and returns those of all processes. */
  whole(own: { readiness: Readiness; registry: Registry }): Whole
  /** Notifies the supervisor that this process serves, with its `facts`. */
  serves(facts: unknown): void
}

/** `name` is that of the process. Throws `invalid_state` for a process that no supervisor started. */
export function joinSupervisor(life: Lifecycle, name: string): Member {
  if (process.send === undefined)
    throw new ServiceError('invalid_state', 'this program is started by another one: use npm start or npm run api')
  const send = process.send.bind(process)
  let own: { readiness: Readiness; registry: Registry } | undefined
  let onHint: (topic: string, payload: Uint8Array) => void = () => undefined
  process.once('disconnect', () => {
    if (!life.isStopping) process.exit(EXIT_FAILED)
  })
  const link = new Link(
    {
      send: (message, written) => void send(message, undefined, undefined, written),
      listen: (handler) => void process.on('message', handler),
      get isOpen() {
        return process.connected
      },
    },
    {
      onHint: (topic, payload) => onHint(topic, payload),
      onNotification: () => undefined,
      respond: async (what) => {
        if (what === READINESS) return own?.readiness.read()
        return what === METRICS ? await own?.registry.metrics() : undefined
      },
    },
  )
  return {
    process: name,
    machine: {
      hints: {
        send: (topic, payload) => link.hint(topic, payload),
        listen: (handler) => void (onHint = handler),
        get isConnected() {
          return link.isOpen
        },
      },
      limits: {
        take: (buckets) => link.request<number>(TAKE_TOKENS, buckets, LIMITS_DEADLINE_MS),
        refund: (buckets) => link.notify(REFUND_TOKENS, buckets),
        close: () => undefined,
      },
    },
    async assignment<A>() {
      const assignment = await link.request<A>(ASSIGNMENT, undefined, ASSIGNMENT_DEADLINE_MS)
      if (assignment === undefined)
        throw new ServiceError('unavailable', 'the supervisor of this process does not answer')
      return assignment
    },
    whole(shown) {
      own = shown
      return {
        process: name,
        readiness: async () =>
          (await link.request<ReadinessReport>(READINESS, undefined, READINESS_DEADLINE_MS)) ?? shown.readiness.read(),
        metrics: async () =>
          (await link.request<string>(METRICS, undefined, WHOLE_METRICS_DEADLINE_MS)) ??
          (await shown.registry.metrics()),
      }
    },
    serves: (facts) => link.notify(SERVING, facts),
  }
}
