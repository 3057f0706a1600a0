/** The whole installation of `docs/scale.md`, stage 3, with traffic on it and a table of what faults cost. */
import { mkdtempSync, rmSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect } from 'vitest'
import { RedisServer } from '../core/redis-server.ts'
import { DatabaseCluster } from './database-cluster.ts'
import { MachineProbe } from './machine.ts'
import type { Balance } from './balancer.ts'
import type { Network } from './network.ts'
import { WebhookReceiver } from '../harness/webhook-receiver.ts'
import { startPrograms } from './programs.ts'
import type { Programs } from './programs.ts'
import { Traffic } from './traffic.ts'
import type { Losses, Outage } from './traffic.ts'

/** How long every part may take to serve again. The goals, far below, are for a machine that does nothing else. */
const HEAL_DEADLINE_MS = 60_000
/** Of each program, where a check failed. */
const OUTPUT_LINES = 30
/** How often each fault is caused. */
const TRIALS = Number(process.env['SKEIN_TEST_TRIALS'] ?? 1)

/** What is done to the cluster, prepared while everything still runs. */
export type Blow = {
  /** Resolves when the fault is over, or begins to be served around. */
  cause(): Promise<void> | void
  repair?(): Promise<void> | void
  /** Checked when the cluster is whole again. */
  verify?(): Promise<void> | void
}

export type Fault = {
  readonly name: string
  /** Of the time without service, on machines that do nothing else. */
  readonly goalSeconds: number
  prepare(cluster: Cluster, trial: number): Promise<Blow> | Blow
}

type Row = {
  fault: Fault
  outages: Outage[]
  losses: Losses
  /** Of each trial; milliseconds. */
  fsyncs: number[]
}

export type ClusterOptions = {
  network?: Network
  balance?: Balance
  /** What a program gets in addition: `api 1`, `manager 2`, or `db-a` for PostgreSQL and Patroni of a database server. */
  environmentOf?: (name: string) => Record<string, string>
}

export class Cluster implements AsyncDisposable {
  readonly database: DatabaseCluster
  readonly redis: RedisServer
  readonly programs: Programs
  readonly traffic: Traffic
  readonly #machine: MachineProbe
  readonly #stack: AsyncDisposableStack
  /** The fault after which something was wrong: what comes after it would prove nothing. */
  #failed: string | undefined
  readonly #rows = new Map<string, Row>()

  private constructor(
    stack: AsyncDisposableStack,
    parts: {
      database: DatabaseCluster
      redis: RedisServer
      programs: Programs
      traffic: Traffic
      machine: MachineProbe
    },
  ) {
    this.#stack = stack
    this.database = parts.database
    this.redis = parts.redis
    this.programs = parts.programs
    this.traffic = parts.traffic
    this.#machine = parts.machine
  }

  static async start({ environmentOf = () => ({}), ...places }: ClusterOptions = {}): Promise<Cluster> {
    const folder = mkdtempSync(join(tmpdir(), 'skein-ha-'))
    await using stack = new AsyncDisposableStack()
    stack.defer(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }))
    const database = stack.use(await DatabaseCluster.start(folder, { ...places, environmentOfMember: environmentOf }))
    const redis = stack.use(await RedisServer.start())
    const receiver = stack.use(await WebhookReceiver.start({ isOrdered: true }))
    const shared = {
      SKEIN_DATABASE_URL: database.primaryUrl,
      SKEIN_DATABASE_REPLICA_URL: database.replicaUrl,
      SKEIN_DATABASE_HA: 'true',
      SKEIN_REDIS_URL: redis.url,
      SKEIN_WEBHOOK_HOSTS: receiver.host,
    }
    const programs = stack.use(await startPrograms(shared, environmentOf))
    const traffic = await Traffic.begin(programs, receiver)
    stack.defer(() => traffic.end())
    await traffic.flows('after the start', HEAL_DEADLINE_MS)
    const machine = stack.use(await MachineProbe.start(folder))
    return new Cluster(stack.move(), { database, redis, programs, traffic, machine })
  }

  /** Causes the fault as often as `SKEIN_TEST_TRIALS` says. */
  async suffer(fault: Fault): Promise<void> {
    for (let trial = 0; trial < TRIALS; trial++) await this.#sufferOnce(fault, trial)
  }

  /**
   * Causes the fault, waits until everything is served again, and notes how long it was not. Then repairs it, waits for three
   * database servers and all programs, and checks what is there.
   */
  async #sufferOnce(fault: Fault, trial: number): Promise<void> {
    const { name } = fault
    if (this.#failed !== undefined) throw new Error(`not tried: the cluster did not recover from: ${this.#failed}`)
    this.#failed = name
    try {
      const blow = await fault.prepare(this, trial)
      const sinceMs = performance.now()
      await blow.cause()
      await this.traffic.flows(`after: ${name}`, HEAL_DEADLINE_MS)
      await blow.repair?.()
      await this.database.untilWhole()
      for (const program of [...this.programs.api, ...this.programs.managers]) await program.untilHealthy()
      // A second interruption, by the repair, counts too.
      await this.traffic.flows(`after the repair of: ${name}`, HEAL_DEADLINE_MS)
      const outage = this.traffic.outageSince(sinceMs)
      const { fsyncMs, lateMs } = this.#machine.worstSince(sinceMs)
      const slow = this.traffic.explain(sinceMs, fault.goalSeconds * 1000)
      const machine = `fsync took up to ${seconds(fsyncMs)} s, timers were up to ${seconds(lateMs)} s late, load ${load()}`
      if (slow !== '') process.stdout.write(`\n${name}, trial ${trial + 1}: ${machine}\n${slow}\n`)
      const { losses, faults } = await this.traffic.check()
      const row = this.#rows.get(name) ?? { fault, outages: [], losses, fsyncs: [] }
      this.#rows.set(name, { fault, losses, outages: [...row.outages, outage], fsyncs: [...row.fsyncs, fsyncMs] })
      expect(faults, `after: ${name}`).toEqual([])
      await blow.verify?.()
    } catch (error) {
      for (const program of this.programs.all)
        process.stdout.write(`\n${program.name}:\n${program.output.split('\n').slice(-OUTPUT_LINES).join('\n')}`)
      throw error
    }
    this.#failed = undefined
  }

  /** Seconds without service and what was wrong, as a table in Markdown. */
  get table(): string {
    const { messages, runs, effects, notified, consumed, changes, commands, revoked } = this.traffic.sums
    const rows = [...this.#rows.values()].map(({ fault, outages, losses, fsyncs }) => {
      const times = (['messages', 'mqtt', 'tasks', 'changes'] as const).map((path) =>
        medianAndWorst(outages.map((outage) => outage[path])),
      )
      const wrong = [losses.missing, losses.storedTwice, losses.resultsTwice, losses.revokedAccepted]
      const cells = [fault.name, fault.goalSeconds, outages.length, ...times, medianAndWorst(fsyncs), wrong.join(' / ')]
      return `| ${cells.join(' | ')} |`
    })
    return [
      '| Fault | Goal (s) | Trials | HTTP, WebSocket, CoAP (s) | MQTT (s) | Tasks (s) | Changes of entities (s) | fsync (s) | Missing / stored twice / results twice / revoked accepted |',
      '|---|---|---|---|---|---|---|---|---|',
      ...rows,
      '',
      `median / worst; acknowledged: ${messages} messages, ${runs} runs, ${revoked} clients disabled; ${effects} messages had their effect once; webhooks received ${notified}; ${consumed} were acknowledged by a named consumer; ${changes} changes of what devices should be; ${commands} commands answered; load ${load()}`,
      '',
    ].join('\n')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync()
  }
}

/** Of the last minute. */
const load = () => loadavg()[0]?.toFixed(1)

const seconds = (valueMs: number | undefined) => ((valueMs ?? 0) / 1000).toFixed(1)

/** Seconds; one figure where there is one. */
function medianAndWorst(timesMs: readonly number[]): string {
  const sorted = timesMs.toSorted((one, other) => one - other)
  const worst = seconds(sorted.at(-1))
  const [lower = 0, upper = 0] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]]
  return sorted.length === 1 ? worst : `${seconds((lower + upper) / 2)} / ${worst}`
}
