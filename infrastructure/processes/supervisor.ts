/**
 * Runs equal processes of one program behind the same ports: starts and restarts them, carries hints and shared limits between them,
 * and reports them as one.
 */
import type { Environment } from '#core/config/index.ts'
import { METRICS_INTERVAL_MS } from '#http/index.ts'
import type { Whole } from '#http/index.ts'
import { createMemoryLimits } from '#core/limits/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { mergeMetrics, removeSources } from '#core/metrics/index.ts'
import type { Registry } from '#core/metrics/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import type { Readiness, ReadinessReport } from '#core/readiness/index.ts'
import { pacedWork } from '#core/paced.ts'
import { sleep } from '#core/time.ts'
import type { Machine } from './machine.ts'
import { PROCESS_METRICS } from './metrics.ts'
import {
  ASSIGNMENT,
  METRICS,
  METRICS_DEADLINE_MS,
  READINESS,
  READINESS_DEADLINE_MS,
  REFUND_TOKENS,
  TAKE_TOKENS,
} from './link-messages.ts'
import type { Buckets } from './link-messages.ts'
import { SupervisedProcess } from './supervised-process.ts'

/** The name of the supervisor among the processes. */
export const SUPERVISOR = 'supervisor'

/** The pause between two requests for the readiness of a process. */
const PROBE_INTERVAL_MS = 500

export type ProcessesOptions = {
  count: number
  /** The program of the processes; see `SupervisedProcess`. */
  entry: URL
  environment: Environment
  settings: Readonly<Record<string, string>>
  /** The log of the processes waits for `programStarted`. */
  showsProgress: boolean
  /** Returns the assignment of a process by its name, at each start of one. The process waits until it resolves. */
  assignmentOf: (name: string) => Promise<unknown>
}

export class Supervisor {
  /** The supervisor's own infrastructure uses it. */
  readonly machine: Machine
  readonly #logger: Logger
  readonly #limits = createMemoryLimits()
  #processes: readonly SupervisedProcess[] = []
  #onHint: (topic: string, payload: Uint8Array) => void = () => undefined
  /** The metrics of all processes, for any process that is asked. */
  readonly #metrics = pacedWork(() => this.#collect(), METRICS_INTERVAL_MS)
  #own: { readiness: Readiness; registry: Registry } | undefined

  constructor(logger: Logger) {
    this.#logger = logger
    this.machine = {
      hints: {
        send: (topic, payload) => this.#sendHint(topic, payload, undefined),
        listen: (handler) => void (this.#onHint = handler),
        isConnected: true,
      },
      limits: this.#limits,
    }
  }

  /** Starts the processes, so that they load while other parts start. They end with this process in any case. */
  launch({ count, entry, environment, settings, showsProgress, assignmentOf }: ProcessesOptions): void {
    this.#processes = Array.from({ length: count }, (_, index) => {
      const name = String(index + 1)
      return new SupervisedProcess({
        name,
        entry,
        environment,
        settings,
        showsProgress,
        logger: this.#logger,
        handlers: {
          onHint: (topic, payload) => {
            this.#onHint(topic, payload)
            this.#sendHint(topic, payload, name)
          },
          onNotification: (what, body) => {
            if (what === REFUND_TOKENS) this.#limits.refund(body as Buckets)
          },
          respond: async (what, body) => {
            if (what === TAKE_TOKENS) return await this.#limits.take(body as Buckets)
            if (what === ASSIGNMENT) return await assignmentOf(name)
            if (what === READINESS) return this.#own?.readiness.read()
            return what === METRICS ? await this.#metrics() : undefined
          },
        },
      })
    })
  }

  /** The processes become a part of the program: they stop before the parts that were started earlier. */
  async attach(life: Lifecycle): Promise<void> {
    await life.start('processes', () => {
      const sources = [
        PROCESS_METRICS.wanted.fromValue(() => this.#processes.length),
        PROCESS_METRICS.serving.fromValue(() => this.#processes.filter(({ isServing }) => isServing).length),
      ]
      const stop = async () => {
        await Promise.all(this.#processes.map((one) => one.stop()))
        removeSources(sources)
      }
      return Promise.resolve({ value: undefined, stop })
    })
  }

  /** The start that this program showed is over. */
  programStarted(): void {
    for (const one of this.#processes) one.programStarted()
  }

  /** Resolves to the facts of each process when all of them serve. Rejects when one cannot start. */
  async started<F>(): Promise<readonly F[]> {
    return (await Promise.all(this.#processes.map(({ started }) => started))) as F[]
  }

  /**
   * Adds the processes to the readiness of the supervisor, which becomes that of the program: `unavailable` when no process can
   * serve, `degraded` when some cannot.
   */
  async whole(life: Lifecycle, own: { readiness: Readiness; registry: Registry }): Promise<Whole> {
    const reports = new Map<SupervisedProcess, ReadinessReport | undefined>()
    const problem = (one: SupervisedProcess) => (one.isServing ? problemOf(reports.get(one)) : NOT_SERVING)
    own.readiness.add(
      ...this.#processes.map((one) => ({
        name: `process ${one.name}`,
        isRequired: false,
        read: () => problem(one)?.text,
      })),
      {
        name: 'processes',
        isRequired: true,
        read: () =>
          this.#processes.every((one) => problem(one)?.isUnavailable === true) ? 'no process can serve' : undefined,
      },
    )
    this.#own = own
    await life.start('readiness of the processes', () => {
      const stopping = new AbortController()
      const watching = this.#processes.map(async (one) => {
        while (!stopping.signal.aborted) {
          reports.set(one, await one.link?.request<ReadinessReport>(READINESS, undefined, READINESS_DEADLINE_MS))
          await sleep(PROBE_INTERVAL_MS, stopping.signal).catch(() => undefined)
        }
      })
      const stop = async () => {
        stopping.abort()
        await Promise.all(watching)
      }
      return Promise.resolve({ value: undefined, stop })
    })
    return {
      process: SUPERVISOR,
      readiness: () => Promise.resolve(own.readiness.read()),
      metrics: () => this.#metrics(),
    }
  }

  /** False when it was dropped for one of the processes. */
  #sendHint(topic: string, payload: Uint8Array, sender: string | undefined): boolean {
    let isSent = true
    for (const { name, link } of this.#processes)
      if (name !== sender && link?.hint(topic, payload) === false) isSent = false
    return isSent
  }

  async #collect(): Promise<string> {
    const others = this.#processes.map(({ link }) => link?.request<string>(METRICS, undefined, METRICS_DEADLINE_MS))
    const texts = await Promise.all([this.#own?.registry.metrics(), ...others])
    return await mergeMetrics(texts.filter((text) => text !== undefined))
  }
}

type Problem = { text: string; isUnavailable: boolean }

const NOT_SERVING: Problem = { text: 'starting', isUnavailable: true }
const SILENT: Problem = { text: 'no response', isUnavailable: true }

function problemOf(report: ReadinessReport | undefined): Problem | undefined {
  if (report === undefined) return SILENT
  if (report.status === 'ready') return undefined
  const reasons = Object.entries(report.checks).flatMap(([name, { reason }]) =>
    reason === undefined ? [] : [`${name}: ${reason}`],
  )
  return { text: reasons.join('; '), isUnavailable: report.status === 'unavailable' }
}
